import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

os.environ["KMP_DUPLICATE_LIB_OK"] = "TRUE"


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n, 16), nn.LeakyReLU(), nn.Dropout(p=0.5), nn.Linear(16, 4))

    def forward(self, x):
        return self.net(x)


def evaluate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
    model.train()
    return right / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(6)
    X = torch.randn(200, 7); Y = X[:, :4].argmax(1)
    train_dl = DataLoader(TensorDataset(X[:160], Y[:160]), 40, True)
    test_dl = DataLoader(TensorDataset(X[160:], Y[160:]), 40)
    model = Model(7)
    optim = torch.optim.AdamW(model.parameters(), lr=5e-3, amsgrad=True)
    step = 0
    for epoch in range(6):
        for x, y in train_dl:
            logits = model(x)
            targets = F.one_hot(y, num_classes=4).float()
            loss = F.binary_cross_entropy_with_logits(logits, targets)
            optim.zero_grad()
            loss.backward()
            optim.step()
            step += 1
            if step % 10 == 0:
                print(step, round(loss.item(), 4), evaluate(model, test_dl))
