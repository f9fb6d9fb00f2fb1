import torch.nn as nn

import config


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(5, config.HIDDEN), nn.Tanh(), nn.Linear(config.HIDDEN, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)
