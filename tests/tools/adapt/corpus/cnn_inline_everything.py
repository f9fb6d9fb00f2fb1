import torch
import torch.nn as nn
from torch.optim import SGD
from torch.utils.data import TensorDataset, DataLoader

if __name__ == '__main__':
    torch.manual_seed(99)
    ds = TensorDataset(torch.randn(72, 2, 9, 9), torch.randint(5, (72,)))
    model = nn.Sequential(
        nn.Conv2d(2, 4, kernel_size=3, bias=False),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.AvgPool2d(3),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    model(torch.zeros(1, 2, 9, 9))
    opt = SGD(model.parameters(), lr=.1)
    best, history = None, []
    for e in range(1, 8):
        epoch_loss = []
        for imgs, lbls in DataLoader(ds, batch_size=24, shuffle=True):
            opt.zero_grad()
            loss = nn.CrossEntropyLoss()(model(imgs), lbls)
            loss.backward()
            opt.step()
            epoch_loss.append(loss.item())
        history.append(sum(epoch_loss) / len(epoch_loss))
        if best is None or history[-1] < best:
            best = history[-1]
    print(f'{best:.4f}')
