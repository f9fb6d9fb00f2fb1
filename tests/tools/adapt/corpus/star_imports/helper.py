import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def to_tensor(array):
    return torch.from_numpy(array.astype(np.float32))


def load_planar(n, seed=3):
    rng = np.random.RandomState(seed)
    x = rng.randn(n, 2)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.float32)
    return to_tensor(x), to_tensor(y).unsqueeze(1)


def hinge(scores, labels):
    return F.relu(1 - (2 * labels - 1) * scores).mean()
