import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

torch.manual_seed(3)
dl = DataLoader(TensorDataset(torch.randn(90, 5), torch.rand(90)), batch_size=30, shuffle=True)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))
opt = torch.optim.SGD(net.parameters(), 0.1)
history = {"loss": []}
for epoch in range(8):
    bar = tqdm(dl, desc=f"epoch {epoch}", disable=True)
    for x, y in bar:
        opt.zero_grad(); out = net(x); loss = nn.functional.mse_loss(out, y); loss.backward(); opt.step()
        bar.set_postfix(loss=loss.item())
        history["loss"].append(loss.detach().cpu().item())
print([round(value, 3) for value in history["loss"]])
