import torch
import torch.nn as nn
import torch.utils.data as data
from sklearn.datasets import load_digits


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 64), nn.Sigmoid())

    def forward(self, x):
        code = self.encoder(x)
        return code, self.decoder(code)


torch.manual_seed(1)
digits = torch.tensor(load_digits().data / 16, dtype=torch.float32)[:512]
loader = data.DataLoader(digits, batch_size=64, shuffle=True)

autoencoder = AutoEncoder()
optimizer = torch.optim.Adam(autoencoder.parameters(), lr=0.005)
loss_func = nn.MSELoss()

for epoch in range(3):
    for step, x in enumerate(loader):
        b_x = x.view(-1, 64)
        b_y = x.view(-1, 64)

        encoded, decoded = autoencoder(b_x)

        loss = loss_func(decoded, b_y)      # mean square error
        optimizer.zero_grad()               # clear gradients for this training step
        loss.backward()                     # backpropagation, compute gradients
        optimizer.step()                    # apply gradients

        if step % 4 == 0:
            print('Epoch: ', epoch, '| train loss: %.4f' % loss.data.numpy())
