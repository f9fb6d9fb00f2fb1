import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def iterate(X, y, size, shuffle=True):
    order = np.random.permutation(len(X)) if shuffle else np.arange(len(X))
    for k in range(0, len(X) - size + 1, size):
        part = order[k:k + size]
        yield torch.as_tensor(X[part]), torch.as_tensor(y[part])


np.random.seed(0)
torch.manual_seed(0)
X = np.random.randn(100, 12).astype(np.float32)
y = (X[:, 0] > 0).astype(np.int64)
net = nn.Sequential(nn.Linear(12, 8), nn.ELU(), nn.BatchNorm1d(8), nn.Linear(8, 2))
opt = torch.optim.AdamW(net.parameters(), 1e-2)
for epoch in range(6):
    net.train(True)
    train_loss = []
    for X_batch, y_batch in iterate(X, y, 20):
        logits = net(X_batch)
        loss = F.cross_entropy(logits, y_batch).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        train_loss.append(loss.data.numpy())
    net.train(False)
    right = [(net(xb).argmax(1) == yb).float().mean().item() for xb, yb in iterate(X, y, 20, shuffle=False)]
    print("%.4f %.2f" % (np.mean(train_loss), np.mean(right)))
