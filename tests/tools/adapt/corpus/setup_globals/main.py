import torch

from common import device, index, vocabulary
from step import train_step

text = "the quick brown fox jumps over the lazy dog " * 4
codes = torch.tensor([index[c] for c in text])


def get_batch(size=6, length=10):
    starts = torch.randint(0, len(codes) - length - 1, (size,))
    x = torch.stack([codes[s : s + length] for s in starts])
    y = torch.stack([codes[s + 1 : s + length + 1] for s in starts])
    return x.to(device), y.to(device)


for iteration in range(30):
    x, y = get_batch()
    loss = train_step(x, y)
    if iteration % 10 == 0:
        print(iteration, f"{loss.item():.3f}", len(vocabulary))
