import torch
import torch.nn.functional as F


def train_supervised(net, batch, opt):
    x, y = batch
    opt.zero_grad()
    out = net(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    opt.step()
    return loss.detach(), out.argmax(1)


def train_regression(net, batch, opt):
    x, y = batch
    opt.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    opt.step()
    return loss.detach()
