import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_regression
from sklearn.preprocessing import StandardScaler

np.random.seed(0); torch.manual_seed(0)
X, Y = make_regression(n_samples=100, n_features=10, noise=3.0, random_state=1)
X = StandardScaler().fit_transform(X)
Y = StandardScaler().fit_transform(Y.reshape(-1, 1))
inputs, targets = torch.FloatTensor(X), torch.FloatTensor(Y)
model = torch.nn.Sequential(torch.nn.Linear(10, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1))
loss_fn = torch.nn.L1Loss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
losses = np.zeros(25)
for t in range(25):
    y_pred = model(inputs)
    loss = loss_fn(y_pred, targets)
    losses[t] = loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step(loss)
    if t % 6 == 0:
        print(t, losses[t], optimizer.param_groups[0]["lr"])
r2 = 1 - ((model(inputs) - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum()
print("r2 %.3f" % r2.item())
