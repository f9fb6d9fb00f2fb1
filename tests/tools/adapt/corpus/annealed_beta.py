import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 6)
        self.dec = nn.Linear(3, 10)

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, dim=-1)
        return self.dec(mean), mean, logvar


def train(model, data, optimizer, epochs=6, size=20):
    for epoch in range(epochs):
        beta = min(1.0, epoch / 4)
        for start in range(0, len(data), size):
            x = data[start:start + size]
            optimizer.zero_grad()
            out, mean, logvar = model(x)
            rec = F.mse_loss(out, x)
            kl = -0.5 * (1 + logvar - mean ** 2 - logvar.exp()).mean()
            loss = rec + beta * kl
            loss.backward()
            optimizer.step()
        print(f"{epoch} rec {rec.item():.4f} kl {kl.item():.4f}")


torch.manual_seed(8)
net = Net()
train(net, torch.randn(80, 10), torch.optim.Adam(net.parameters(), lr=0.02))
