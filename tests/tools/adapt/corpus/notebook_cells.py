# %% imports
import torch, torch.nn as nn, torch.nn.functional as F

# %% data
g = torch.Generator().manual_seed(2147483647)
words = ["emma", "olivia", "ava", "isabella", "sophia", "charlotte", "mia", "amelia", "harper", "evelyn"]
chars = sorted(list(set(''.join(words))))
stoi = {s:i+1 for i,s in enumerate(chars)}
stoi['.'] = 0
block_size = 3
X, Y = [], []
for w in words:
  context = [0] * block_size
  for ch in w + '.':
    ix = stoi[ch]
    X.append(context)
    Y.append(ix)
    context = context[1:] + [ix]
X = torch.tensor(X)
Y = torch.tensor(Y)

# %% model
class MLP(nn.Module):
  def __init__(self):
    super().__init__()
    self.C = nn.Embedding(len(stoi), 4)
    self.h = nn.Linear(block_size * 4, 20)
    self.o = nn.Linear(20, len(stoi))
  def forward(self, idx):
    emb = self.C(idx)
    return self.o(torch.tanh(self.h(emb.view(emb.shape[0], -1))))

torch.manual_seed(0)
model = MLP()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

# %% train
lossi = []
for i in range(30):
  # minibatch construct
  ix = torch.randint(0, X.shape[0], (32,), generator=g)
  Xb, Yb = X[ix], Y[ix]
  # forward pass
  logits = model(Xb)
  loss = F.cross_entropy(logits, Yb)
  # backward pass
  for p in model.parameters():
    p.grad = None
  loss.backward()
  # update
  optimizer.step()
  # track stats
  lossi.append(loss.log10().item())
print(lossi[-1])

# %% full loss
with torch.no_grad():
  print(F.cross_entropy(model(X), Y).item())
