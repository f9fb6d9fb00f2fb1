import torch
import torch.nn as nn


def main():
    torch.manual_seed(0)
    lam = 1e-3
    x = torch.randn(128, 20)
    y = x[:, :3].sum(dim=1, keepdim=True)
    model = nn.Linear(20, 1)
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(30):
        pred = model(x)
        mse = loss_fn(pred, y)
        l1 = sum(p.abs().sum() for p in model.parameters())
        loss = mse + lam * l1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 9:
            print(f"{epoch + 1}: mse={mse.item():.4f} l1={l1.item():.4f}")


main()
