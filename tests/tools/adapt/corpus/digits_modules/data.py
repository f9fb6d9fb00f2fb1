import torch
from torch.utils.data import DataLoader, TensorDataset


def get_loaders(batch_size, count=100):
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(count, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    train = TensorDataset(images[:80], labels[:80])
    test = TensorDataset(images[80:], labels[80:])
    return (
        DataLoader(train, batch_size=batch_size, shuffle=True),
        DataLoader(test, batch_size=batch_size),
    )
