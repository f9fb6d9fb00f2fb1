import torch

from .metrics import AverageMeter, accuracy


def train_one_epoch(model, criterion, data_loader, optimizer, device, epoch, clip=1.0):
    model.train()
    meter = AverageMeter()
    acc = AverageMeter()
    for batch in data_loader:
        tokens = batch["tokens"].to(device, non_blocking=True)
        labels = batch["label"].to(device, non_blocking=True)
        logits = model(tokens)
        loss = criterion(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        meter.update(loss.item(), tokens.size(0))
        acc.update(accuracy(logits, labels), tokens.size(0))
    print(f"[{epoch}] train {meter.avg:.4f} acc {acc.avg:.3f}")
    return meter.avg


@torch.no_grad()
def evaluate(model, criterion, data_loader, device):
    model.eval()
    meter = AverageMeter()
    for batch in data_loader:
        logits = model(batch["tokens"].to(device))
        meter.update(criterion(logits, batch["label"].to(device)).item(), len(logits))
    return meter.avg
