import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Linear(2, 1)
x = torch.randn(32, 2)
y = x @ torch.tensor([[2.0], [-1.0]])
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5)
for i in range(5):
    def closure():
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        return loss
    loss = optimizer.step(closure)
    print(i, loss.item())
