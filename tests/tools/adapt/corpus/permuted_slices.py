import numpy as np
import torch
from torch import nn
from torch.optim import Adam

np.random.seed(5)
torch.manual_seed(5)
X = np.random.randn(103, 7).astype("float32")
Y = (X.sum(axis=1) > 0).astype("float32")
split = 83
x_train, y_train = torch.from_numpy(X[:split]), torch.from_numpy(Y[:split])
x_test, y_test = torch.from_numpy(X[split:]), torch.from_numpy(Y[split:])
BATCH = 16

model = nn.Sequential(nn.Linear(7, 10), nn.Tanh(), nn.Linear(10, 1))
bce, optimizer = nn.BCEWithLogitsLoss(), Adam(model.parameters(), lr=0.01)

for epoch in range(4):
    model.train()
    order = torch.randperm(len(x_train))
    total = 0.0
    for i in range(0, len(x_train), BATCH):
        chosen = order[i : i + BATCH]
        optimizer.zero_grad()
        loss = bce(model(x_train[chosen]).squeeze(1), y_train[chosen])
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    hits = 0
    with torch.no_grad():
        for i in range(0, len(x_test), BATCH):
            out = model(x_test[i : i + BATCH]).squeeze(1)
            hits += ((out > 0) == (y_test[i : i + BATCH] > 0.5)).sum().item()
    print(epoch, round(total, 3), hits / len(x_test))
