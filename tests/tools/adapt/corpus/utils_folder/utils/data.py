import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


def build_loader(cfg):
    x = torch.rand(cfg["count"], 3, 8, 8)
    y = (x.mean(dim=(1, 2, 3)) > 0.5).long()
    train, val = random_split(TensorDataset(x, y), [cfg["count"] - 16, 16])
    common = dict(batch_size=cfg["batch_size"])
    return DataLoader(train, shuffle=True, **common), DataLoader(val, **common)
