import math
import torch
import torch.nn as nn

def get_lr(it, warmup, total, base):
    if it < warmup:
        return base * (it + 1) / warmup
    return 0.5 * base * (1 + math.cos(math.pi * (it - warmup) / (total - warmup)))

torch.manual_seed(9)
total = 30
xs = torch.randn(200, 7)
ys = (xs[:, :1] * xs[:, 1:2]).tanh()
model = nn.Sequential(nn.Linear(7, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
for it in range(total):
    lr = get_lr(it, 5, total, 1e-2)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr
    rows = torch.randint(0, 200, (32,))
    loss = nn.functional.mse_loss(model(xs[rows]), ys[rows])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if it % 10 == 0:
        print(f"iter {it} loss {loss.item():.5f} lr {lr:.2e}")
