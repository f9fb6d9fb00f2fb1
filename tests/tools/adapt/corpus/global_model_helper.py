import torch
from torch import nn, optim

torch.manual_seed(2)
net = nn.Sequential(nn.Linear(3, 10), nn.Tanh(), nn.Linear(10, 3))
mse = nn.MSELoss()


def compute_loss(batch, weight):
    reconstruction = net(batch)
    return mse(reconstruction, batch) * weight


def do_step(opt, batch):
    opt.zero_grad()
    loss = compute_loss(batch, 2.0)
    loss.backward()
    opt.step()
    return loss.detach()


opt = optim.Adam(net.parameters(), lr=0.01)
total = torch.zeros(())
for k in range(21):
    total += do_step(opt, torch.randn(12, 3))
    if k % 7 == 6:
        print(k, "mean", (total / 7).item())
        total.zero_()
