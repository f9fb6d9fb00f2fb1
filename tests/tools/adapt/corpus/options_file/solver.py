import torch
import torch.nn as nn

from nets import Scorer


def batches(steps, size=12):
    for _ in range(steps):
        better = torch.randn(size, 4) + 0.5
        worse = torch.randn(size, 4)
        yield better, worse


def solve(opt):
    scorer = Scorer(opt.hidden)
    criterion = nn.MarginRankingLoss(margin=opt.margin)
    optimizer = torch.optim.SGD(scorer.parameters(), lr=opt.lr)
    ones = torch.ones(12)
    for step, (better, worse) in enumerate(batches(opt.steps)):
        high, low = scorer(better), scorer(worse)
        loss = criterion(high, low, ones)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            right = (high > low).float().mean().item()
            print(f"step {step:3d} loss {loss.item():.4f} right {right:.2f}")
    return scorer
