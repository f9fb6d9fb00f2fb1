from argparse import ArgumentParser

import torch
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset

from engines import train_supervised
from zoo import create

parser = ArgumentParser()
parser.add_argument("--model", default="mlp")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(60, 7)
y = x[:, :3].argmax(1)
loader = DataLoader(TensorDataset(x, y), 10, shuffle=True)
net = create(args.model, dim=7, classes=3)
opt = AdamW(net.parameters(), lr=1e-2)

for epoch in range(args.epochs):
    hits = 0
    for batch in loader:
        loss, guess = train_supervised(net, batch, opt)
        hits += (guess == batch[1]).sum().item()
    print(f"epoch {epoch}: loss {loss:.4f} hits {hits}")
