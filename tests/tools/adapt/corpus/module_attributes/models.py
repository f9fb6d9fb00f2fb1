import torch
import torch.nn as nn


class Autoencoder(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, n_hidden), nn.ReLU())
        self.decoder = nn.Linear(n_hidden, n_in)

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), code


def build(n_in=12, n_hidden=6):
    return Autoencoder(n_in, n_hidden)
