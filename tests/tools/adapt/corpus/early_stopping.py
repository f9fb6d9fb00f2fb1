import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class EarlyStopping:
    def __init__(self, patience=3, path="early.pt"):
        self.patience, self.path = patience, path
        self.counter, self.best, self.early_stop = 0, np.inf, False

    def __call__(self, val_loss, model):
        if val_loss < self.best:
            self.best = val_loss
            self.counter = 0
            torch.save(model.state_dict(), self.path)
        else:
            self.counter += 1
            self.early_stop = self.counter >= self.patience


def fit(model, train_dl, valid_dl, opt, loss_func, epochs):
    stopper = EarlyStopping()
    for epoch in range(epochs):
        model.train()
        for xb, yb in train_dl:
            loss_batch(model, loss_func, xb, yb, opt)
        model.eval()
        with torch.no_grad():
            losses, nums = zip(*[(loss_func(model(xb), yb).item(), len(xb)) for xb, yb in valid_dl])
        val_loss = np.sum(np.multiply(losses, nums)) / np.sum(nums)
        print(epoch, "%.5f" % val_loss)
        stopper(val_loss, model)
        if stopper.early_stop:
            break
    model.load_state_dict(torch.load(stopper.path))
    return model


def loss_batch(model, loss_func, xb, yb, opt=None):
    loss = loss_func(model(xb), yb)
    if opt is not None:
        loss.backward()
        opt.step()
        opt.zero_grad()
    return loss.item(), len(xb)


def get_model():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


torch.manual_seed(0)
x = torch.rand(100, 4)
dataset = TensorDataset(x, x.sum(1, keepdim=True))
train_ds, valid_ds = random_split(dataset, [80, 20])
train_dl = DataLoader(train_ds, batch_size=10, shuffle=True)
valid_dl = DataLoader(valid_ds, batch_size=20)
model, opt = get_model()
model = fit(model, train_dl, valid_dl, opt, nn.functional.mse_loss, 5)
print("final", float(nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))))
