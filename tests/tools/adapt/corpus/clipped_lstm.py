import math
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


class SineForecaster(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, series):
        states, _ = self.rnn(series)
        return self.head(states[:, -1])


def windows(count, length):
    start = torch.rand(count, 1) * 2 * math.pi
    t = torch.arange(length + 1) * 0.3
    wave = torch.sin(start + t)
    return wave[:, :-1].unsqueeze(-1), wave[:, -1:]


def run(steps=22, clip=0.5):
    net = SineForecaster()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    criterion = nn.SmoothL1Loss()
    total = 0.0
    for step in range(steps):
        inputs, target = windows(16, 12)
        opt.zero_grad()
        loss = criterion(net(inputs), target)
        loss.backward()
        clip_grad_norm_(net.parameters(), clip)
        opt.step()
        total += loss.item()
        if (step + 1) % 10 == 0:
            print(f"{step + 1:4d} {total / 10:.5f}")
            total = 0.0


if __name__ == "__main__":
    torch.manual_seed(3)
    run()
