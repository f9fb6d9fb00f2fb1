import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
accumulation_steps = 4
dataset = TensorDataset(torch.randn(128, 6), torch.randn(128, 2))
loader = DataLoader(dataset, batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2))
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

model.train()
optimizer.zero_grad()
running = 0.0
for i, (inputs, labels) in enumerate(loader):
    outputs = model(inputs)
    loss = criterion(outputs, labels) / accumulation_steps  # mean over the large batch
    loss.backward()
    running += loss.item()
    if (i + 1) % accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
        print("update", (i + 1) // accumulation_steps, "loss %.5f" % running)
        running = 0.0
