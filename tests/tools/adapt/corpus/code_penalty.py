import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

class AE(nn.Module):
    def __init__(self, dim=64, code=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(True), nn.Linear(32, code))
        self.dec = nn.Sequential(nn.Linear(code, 32), nn.ReLU(True), nn.Linear(32, dim), nn.Sigmoid())
    def forward(self, x):
        z = self.enc(x)
        return self.dec(z), z

def run(epochs=4, lr=1e-3, beta=0.01):
    torch.manual_seed(11)
    images = torch.rand(128, 1, 8, 8)
    loader = DataLoader(TensorDataset(images), batch_size=16, shuffle=True, drop_last=True)
    model = AE()
    mse = nn.MSELoss(reduction="mean")
    optim = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        running = 0.0
        for (img,) in loader:
            flat = img.view(img.size(0), -1)
            recon, code = model(flat)
            recon_loss = mse(recon, flat)
            reg = code.pow(2).mean()
            loss = recon_loss + beta * reg
            optim.zero_grad()
            loss.backward()
            optim.step()
            running += recon_loss.item()
        print("epoch [{}/{}], recon {:.5f}".format(epoch + 1, epochs, running / len(loader)))

run()
