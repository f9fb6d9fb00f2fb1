import argparse
import os
import torch
import torch.nn as nn


def save_checkpoint(state, filename="checkpoint.pth.tar"):
    torch.save(state, filename)


def load_checkpoint(model, optimizer, filename):
    checkpoint = torch.load(filename)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="", type=str)
    parser.add_argument("--epochs", default=4, type=int)
    args = parser.parse_args()
    torch.manual_seed(1)
    model = nn.Linear(6, 3)
    criterion = nn.MultiMarginLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    start = 0
    if args.resume and os.path.isfile(args.resume):
        start = load_checkpoint(model, optimizer, args.resume)
    x, y = torch.randn(60, 6), torch.randint(0, 3, (60,))
    dataset = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(dataset, batch_size=10, shuffle=True)
    for epoch in range(start, args.epochs):
        for data in loader:
            images, target = data[0], data[1]
            output = model(images)
            loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()})
        print("epoch", epoch, "loss", loss.item(), "norm", model.weight.norm().item())


if __name__ == "__main__":
    main()
