import fire
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def main(lr=0.05, epochs=2, batch_size=16, hidden=(16, 8), seed=0, verbose=True, activation="relu"):
    torch.manual_seed(seed)
    sizes = (6, *hidden)
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU() if activation == "relu" else torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 1))
    x = torch.randn(160, 6)
    dataset = TensorDataset(x, (x ** 2).mean(1, keepdim=True))
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        for xb, yb in DataLoader(dataset, batch_size=batch_size, shuffle=True):
            loss = F.mse_loss(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if verbose:
            print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    fire.Fire(main)
