import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(accelerator, batch_size=8):
    with accelerator.main_process_first():
        x = torch.randn(72, 6)
        y = (x[:, 0] > x[:, 1]).long()
    train = DataLoader(TensorDataset(x[:56], y[:56]), shuffle=True, batch_size=batch_size)
    return train, DataLoader(TensorDataset(x[56:], y[56:]), batch_size=batch_size)


def training_function(config, args):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
    torch.manual_seed(config["seed"])
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, config["batch_size"])
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    model = model.to(accelerator.device)
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=config["lr"])
    lr_scheduler = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 40))
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )
    for epoch in range(config["num_epochs"]):
        model.train()
        total_loss = 0
        for x, y in train_dataloader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                total_loss += loss.detach().float()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
        model.eval()
        hits = count = 0
        for x, y in eval_dataloader:
            with torch.no_grad():
                predictions = model(x).argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, y))
            hits += (predictions == references).sum().item()
            count += len(references)
        accelerator.print(f"epoch {epoch}: loss {total_loss.item() / len(train_dataloader):.4f} hits {hits}/{count}")
    accelerator.wait_for_everyone()
    unwrapped_model = accelerator.unwrap_model(model)
    if accelerator.is_main_process:
        accelerator.print(sum(p.numel() for p in unwrapped_model.parameters()), "parameters")
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--cpu", action="store_true", help="Train on the CPU.")
    args = parser.parse_args()
    config = {"lr": 2e-3, "num_epochs": 3, "seed": 42, "batch_size": 8}
    training_function(config, args)


if __name__ == "__main__":
    main()
