import torch
from torch import nn

torch.manual_seed(0)
rnn = nn.LSTM(3, 8, batch_first=True)
head = nn.Linear(8, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
series = torch.sin(torch.arange(0, 60.0)).view(1, -1, 3)
hidden = None
for start in range(0, 15, 5):
    x = series[:, start:start + 5]
    opt.zero_grad()
    out, hidden = rnn(x, hidden)
    loss = (head(out) - x.mean(-1, keepdim=True)).pow(2).mean()
    loss.backward()
    opt.step()
    hidden = tuple(part.detach() for part in hidden)
    print(loss.item())
