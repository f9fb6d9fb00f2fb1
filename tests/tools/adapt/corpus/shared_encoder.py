"""Learns a distance with pairs: two forwards of one network in a step."""
import random
import torch
from torch import nn, optim

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=-1)

def contrastive(a, b, same, margin=1.0):
    d = (a - b).norm(dim=1)
    return (same * d.pow(2) + (1 - same) * torch.clamp(margin - d, min=0).pow(2)).mean()

def batches(count, size):
    for _ in range(count):
        left = torch.randn(size, 10)
        same = torch.randint(0, 2, (size,)).float()
        right = torch.where(same[:, None] > 0, left + 0.1 * torch.randn(size, 10), torch.randn(size, 10))
        yield left, right, same

if __name__ == "__main__":
    random.seed(5)
    torch.manual_seed(5)
    net = Encoder()
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    net.train()
    for n, (left, right, same) in enumerate(batches(24, 16)):
        optimizer.zero_grad()
        loss = contrastive(net(left), net(right), same)
        loss.backward()
        optimizer.step()
        if n % 8 == 0:
            print(n, f"{loss.item():.5f}")
