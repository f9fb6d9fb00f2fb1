# regression, hand written SGD loop with tqdm-like printing and early stopping
import numpy as np, torch
from torch import nn
np.random.seed(3); torch.manual_seed(3)
N, D = 256, 12
X = np.random.randn(N, D).astype("float32")
w = np.random.randn(D, 1).astype("float32")
Y = X @ w + .05*np.random.randn(N,1).astype("float32")
Xt, Yt = torch.from_numpy(X), torch.from_numpy(Y)
net = nn.Sequential(nn.Linear(D, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-5)
bs = 32
best, patience = float("inf"), 0
for ep in range(20):
    perm = torch.randperm(N)
    tot = 0.
    for i in range(0, N, bs):
        idx = perm[i:i+bs]
        xb, yb = Xt[idx], Yt[idx]
        pred = net(xb)
        l = ((pred - yb)**2).mean()
        opt.zero_grad(); l.backward(); opt.step()
        tot += l.item() * len(xb)
    tot /= N
    print("epoch", ep, "mse", round(tot, 5))
    if tot < best - 1e-6:
        best, patience = tot, 0
    else:
        patience += 1
    if patience > 3: break
