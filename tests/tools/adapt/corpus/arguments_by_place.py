#!/usr/bin/env python3
import sys
import torch
import torch.nn as nn

torch.manual_seed(42)

class SinePredictor(nn.Module):
    def __init__(self, hidden_size=20):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, seq):
        h, _ = self.lstm(seq)
        return self.out(h)

t = torch.linspace(0, 30, 321)
wave = torch.sin(t)
windows = wave.unfold(0, 33, 16)
inputs = windows[:, :-1].unsqueeze(-1)
targets = windows[:, 1:].unsqueeze(-1)

device = torch.device("cpu")
model = SinePredictor().to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 25
for step in range(epochs):
    model.zero_grad()
    pred = model(inputs.to(device))
    loss = criterion(pred, targets.to(device))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    if (step + 1) % 5 == 0:
        print("STEP:", step + 1, "loss:", float(loss))

with torch.no_grad():
    future = model(inputs)
    print("final", criterion(future, targets).item())
