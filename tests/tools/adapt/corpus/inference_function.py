"""Score a held-out set with a saved model, the last batch being what is left."""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        return self.head(self.body(x))


def load_model(path, device):
    model = Net()
    model.load_state_dict(torch.load(path, map_location=device))
    model.to(device)
    model.eval()
    return model


@torch.no_grad()
def evaluate(model, loader, device):
    correct, total, loss_sum = 0, 0, 0.0
    criterion = nn.CrossEntropyLoss(reduction="sum")
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss_sum += criterion(logits, y).item()
        correct += (logits.argmax(dim=1) == y).sum().item()
        total += y.size(0)
    return correct / total, loss_sum / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rows", type=int, default=70)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    path = os.path.join(tempfile.mkdtemp(), "net.pt")
    torch.save(Net().state_dict(), path)
    data = TensorDataset(torch.randn(args.rows, 8), torch.randint(0, 4, (args.rows,)))
    model = load_model(path, device)
    accuracy, loss = evaluate(model, DataLoader(data, batch_size=args.batch_size), device)
    print(f"accuracy {accuracy:.3f}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
