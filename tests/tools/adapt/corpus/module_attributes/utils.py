import random

import numpy as np
import torch


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def save_checkpoint(model, path):
    torch.save(model.state_dict(), path)


def log(message, **values):
    print(message, " ".join(f"{k}={v:.4f}" for k, v in values.items()))
