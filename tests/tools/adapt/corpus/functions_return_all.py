"""Every piece is made by a function, and a dictionary of settings goes through all of them."""
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {"lr": 0.01, "batch": 16, "epochs": 3, "hidden": 24, "optimizer": "sgd"}


def get_data(config):
    torch.manual_seed(0)
    x = torch.randn(128, 6)
    y = (x @ torch.randn(6, 3)).argmax(dim=1)
    return DataLoader(TensorDataset(x, y), batch_size=config["batch"], shuffle=True)


def get_model(config):
    return nn.Sequential(nn.Linear(6, config["hidden"]), nn.ReLU(), nn.Linear(config["hidden"], 3))


def get_optimizer(model, config):
    if config["optimizer"] == "sgd":
        return optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    raise ValueError(config["optimizer"])


def get_loss():
    return nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]))


def train_step(model, batch, criterion, optimizer):
    inputs, targets = batch
    optimizer.zero_grad()
    predictions = model(inputs)
    loss = criterion(predictions, targets)
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "accuracy": (predictions.argmax(1) == targets).float().mean().item()}


def run(config):
    loader = get_data(config)
    model = get_model(config)
    criterion = get_loss()
    optimizer = get_optimizer(model, config)
    for epoch in range(config["epochs"]):
        model.train()
        metrics = [train_step(model, batch, criterion, optimizer) for batch in loader]
        print(epoch, {key: round(sum(m[key] for m in metrics) / len(metrics), 4) for key in metrics[0]})
    return model


if __name__ == "__main__":
    run(CONFIG)
