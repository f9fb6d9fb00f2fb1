import torch
import torch.nn.functional as F

from models.vgg import SmallVGG
from utils import build_loader, build_optimizer, set_seed

CFG = {"count": 72, "batch_size": 12, "lr": 0.02, "weight_decay": 1e-4, "epochs": 4}


def validate(model, loader):
    model.eval()
    hits = total = 0
    with torch.inference_mode():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return hits / total


def main():
    set_seed(3)
    train_loader, val_loader = build_loader(CFG)
    model = SmallVGG()
    optimizer = build_optimizer(model, CFG)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CFG["epochs"])
    best = 0.0
    for epoch in range(CFG["epochs"]):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
        scheduler.step()
        best = max(best, validate(model, val_loader))
        print(f"{epoch}: loss {loss:.4f}, best {best:.3f}, lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
