# What the weights were before each step is printed with the loss of it.
import torch
torch.manual_seed(0)
x = torch.randn(16, 3)
y = x.sum(1, keepdim=True)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for i in range(25):
    optimizer.zero_grad()
    # the output
    output = model(x)
    loss = (output - y).square().mean()
    loss.backward()
    print(f"{i} {loss.item():.3f} {model.weight[0, 0].item():.4f}")
    optimizer.step()
print(model.weight)
