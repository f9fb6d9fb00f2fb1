import torch
import torch.nn as nn
import torch.nn.functional as F


def info_nce(z1, z2, temperature=0.5):
    z1 = F.normalize(z1, dim=1)
    z2 = F.normalize(z2, dim=1)
    logits = z1 @ z2.t() / temperature
    labels = torch.arange(z1.size(0), device=z1.device)
    return F.cross_entropy(logits, labels)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
        self.projector = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        h = self.backbone(x)
        return h, self.projector(h)


def augment(x):
    return x + 0.1 * torch.randn_like(x)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
    data = torch.randn(96, 10)
    encoder = Encoder().to(device)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    for epoch in range(5):
        order = torch.randperm(96)
        epoch_loss = 0.0
        for rows in order.split(24):
            x = data[rows].to(device)
            _, z1 = encoder(augment(x))
            _, z2 = encoder(augment(x))
            loss = info_nce(z1, z2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        print(f"epoch {epoch}: {epoch_loss / 4:.4f}")


if __name__ == "__main__":
    main()
