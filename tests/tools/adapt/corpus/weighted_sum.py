import torch
from torch import nn
import torch.nn.functional as F


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.SiLU())
        self.kind = nn.Linear(32, 3)
        self.size = nn.Linear(32, 1)

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.size(h).squeeze(-1)


def make_data(n):
    x = torch.randn(n, 8)
    return x, torch.randint(0, 3, (n,)), x.sum(dim=1)


def fit(model, x, kinds, sizes, epochs, batch, alpha=0.3):
    ce, mse = nn.CrossEntropyLoss(), nn.MSELoss()
    optimizer = torch.optim.SGD([{"params": model.body.parameters()},
                                 {"params": model.kind.parameters(), "lr": 0.02},
                                 {"params": model.size.parameters()}], lr=0.01, momentum=0.9, weight_decay=1e-4)
    for epoch in range(epochs):
        order = torch.randperm(len(x))
        for begin in range(0, len(x), batch):
            rows = order[begin:begin + batch]
            kind_logits, size_hat = model(x[rows])
            loss_kind = ce(kind_logits, kinds[rows])
            loss_size = mse(size_hat, sizes[rows])
            loss = loss_kind + alpha * loss_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, float(loss), loss_kind.item(), loss_size.item())


torch.manual_seed(5)
fit(TwoHeads(), *make_data(96), epochs=5, batch=16)
