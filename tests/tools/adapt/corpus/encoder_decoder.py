import torch
import torch.nn as nn
import torch.optim as optim


class Encoder(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.embedding = nn.Embedding(size, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, tokens):
        return self.gru(self.embedding(tokens))


class Decoder(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.embedding = nn.Embedding(size, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, size)

    def forward(self, tokens, state):
        out, state = self.gru(self.embedding(tokens), state)
        return self.out(out), state


def batch(n, length=6, size=11):
    source = torch.randint(1, size, (n, length))
    target = source.flip(1)
    start = torch.zeros(n, 1, dtype=torch.long)
    return source, torch.cat([start, target[:, :-1]], dim=1), target


torch.manual_seed(4)
encoder, decoder = Encoder(11, 16), Decoder(11, 16)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(list(encoder.parameters()) + list(decoder.parameters()), lr=0.01)
print_loss_total = 0

for step in range(1, 25):
    source, shifted, target = batch(8)
    optimizer.zero_grad()
    _, state = encoder(source)
    logits, _ = decoder(shifted, state)
    loss = criterion(logits.reshape(-1, 11), target.reshape(-1))
    loss.backward()
    optimizer.step()
    print_loss_total += loss.item()
    if step % 8 == 0:
        print(f"{step:3d} {print_loss_total / 8:.4f}")
        print_loss_total = 0
