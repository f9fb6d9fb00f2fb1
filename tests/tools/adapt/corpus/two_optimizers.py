import torch
import torch.nn as nn

torch.manual_seed(21)
backbone = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
head = nn.Linear(12, 2)
opt_backbone = torch.optim.SGD(backbone.parameters(), lr=0.01)
opt_head = torch.optim.AdamW(head.parameters(), lr=0.003)
loss_function = nn.CrossEntropyLoss()
for step in range(24):
    x = torch.randn(10, 6)
    y = (x.sum(1) > 0).long()
    opt_backbone.zero_grad()
    opt_head.zero_grad()
    loss = loss_function(head(backbone(x)), y)
    loss.backward()
    opt_backbone.step()
    opt_head.step()
    if step % 6 == 5:
        print("step", step, "loss", loss.item())
