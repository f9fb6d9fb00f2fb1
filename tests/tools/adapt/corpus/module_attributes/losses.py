import torch
import torch.nn.functional as F


def reconstruction_loss(output, target, code, sparsity=1e-3):
    return F.mse_loss(output, target) + sparsity * code.abs().mean()
