import torch
import torch.nn as nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
loss = nn.BCEWithLogitsLoss()
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
for step in range(20):
    real = torch.randn(16, 2) + 2
    fake = G(torch.randn(16, 4))
    opt_d.zero_grad()
    loss_d = loss(D(real), torch.ones(16, 1)) + loss(D(fake.detach()), torch.zeros(16, 1))
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = loss(D(fake), torch.ones(16, 1))
    loss_g.backward()
    opt_g.step()
    if step % 5 == 0:
        print(step, loss_d.item(), loss_g.item())
