import torch
import torch.nn as nn


class UncertaintyLoss(nn.Module):
    """Weighs two losses by what it learns of their noise."""

    def __init__(self):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, a, b):
        precision = torch.exp(-self.log_vars)
        return precision[0] * a + precision[1] * b + self.log_vars.sum()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
balance = UncertaintyLoss()
optimizer = torch.optim.Adam([*model.parameters(), *balance.parameters()], lr=0.01)
x = torch.randn(64, 4)
y = torch.stack([x.sum(1), x.prod(1)], dim=1)
for step in range(25):
    out = model(x)
    first = (out[:, 0] - y[:, 0]).pow(2).mean()
    second = (out[:, 1] - y[:, 1]).abs().mean()
    loss = balance(first, second)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 0:
        print(step, first.item(), second.item(), loss.item())
