import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class Triplets(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(5)
        self.centres = torch.randn(4, 6, generator=g)
        self.rows = [(i % 4, (i + 1 + i // 4 % 3) % 4) for i in range(n)]
        self.noise = torch.randn(n, 3, 6, generator=g) * 0.3

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        same, other = self.rows[i]
        a, p, n = self.noise[i]
        return self.centres[same] + a, self.centres[same] + p, self.centres[other] + n


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(6, 24), nn.PReLU(), nn.Linear(24, 2))

    def forward(self, x):
        return F.normalize(self.fc(x), dim=-1)

    def get_embedding(self, x):
        return self.forward(x)


def train_epoch(loader, net, criterion, optimizer):
    net.train()
    total = 0.
    for anchor, positive, negative in loader:
        ea, ep, en = net(anchor), net(positive), net(negative)
        loss = criterion(ea, ep, en)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


if __name__ == '__main__':
    torch.manual_seed(1)
    net = EmbeddingNet()
    loader = DataLoader(Triplets(), batch_size=16, shuffle=True)
    criterion = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(6):
        print('Epoch %d: %.4f' % (epoch, train_epoch(loader, net, criterion, optimizer)))
    with torch.no_grad():
        print(net.get_embedding(torch.ones(1, 6)).shape)
