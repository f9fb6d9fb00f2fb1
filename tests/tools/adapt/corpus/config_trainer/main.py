import torch
from torch.utils.data import DataLoader, TensorDataset

import config
from network import Regressor
from trainer import Trainer

torch.manual_seed(42)


def make_loader():
    x = torch.randn(64, 5)
    y = x.pow(2).sum(1)
    return DataLoader(TensorDataset(x, y), batch_size=config.BATCH_SIZE, shuffle=True)


if __name__ == "__main__":
    trainer = Trainer(Regressor(), make_loader())
    trainer.fit()
    print("last", round(trainer.history[-1], 3))
