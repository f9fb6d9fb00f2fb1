import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n_in, 12), nn.Linear(12, n_out)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Experiment:
    def __init__(self, lr=0.05, seed=0):
        torch.manual_seed(seed)
        self.net = Net(5, 2)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr, weight_decay=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.9)
        self.x = torch.randn(80, 5)
        self.y = (self.x[:, 0] > self.x[:, 1]).long()

    def batches(self, size):
        for i in range(0, len(self.x), size):
            yield self.x[i:i + size], self.y[i:i + size]

    def fit(self, epochs=5, size=20):
        for epoch in range(epochs):
            total = 0.0
            for xb, yb in self.batches(size):
                total += self.step(xb, yb)
            self.scheduler.step()
            print(f"epoch {epoch} loss {total:.4f} accuracy {self.accuracy():.2f}")

    def step(self, xb, yb):
        self.net.train()
        self.optimizer.zero_grad()
        loss = self.criterion(self.net(xb), yb)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self):
        self.net.eval()
        return (self.net(self.x).argmax(1) == self.y).float().mean().item()


experiment = Experiment()
experiment.fit()
