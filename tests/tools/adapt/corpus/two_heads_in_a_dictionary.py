import torch
import torch.nn.functional as F
from torch import nn

SEED, EPOCHS, BATCH = 9, 3, 25

class MultiTask(nn.Module):
    def __init__(self, n_in, n_cls):
        super().__init__()
        self.trunk = nn.Linear(n_in, 40)
        self.cls = nn.Linear(40, n_cls)
        self.reg = nn.Linear(40, 1)
    def forward(self, batch):
        h = torch.relu(self.trunk(batch))
        return {"logits": self.cls(h), "value": self.reg(h).squeeze(-1)}

def accuracy(logits, y):
    return (logits.argmax(-1) == y).sum().item() / len(y)

def train_one_epoch(net, opt, xs, ys, vs):
    net.train()
    totals = {"cls": 0.0, "reg": 0.0, "acc": 0.0}
    steps = 0
    for x, y, v in zip(xs.split(BATCH), ys.split(BATCH), vs.split(BATCH)):
        out = net(x)
        l_cls = F.cross_entropy(out["logits"], y)
        l_reg = F.smooth_l1_loss(out["value"], v)
        (l_cls + 0.5 * l_reg).backward()
        opt.step()
        opt.zero_grad()
        totals["cls"] += l_cls.item()
        totals["reg"] += l_reg.item()
        totals["acc"] += accuracy(out["logits"], y)
        steps += 1
    return {k: v / steps for k, v in totals.items()}

def main():
    torch.manual_seed(SEED)
    xs, ys, vs = torch.randn(200, 6), torch.randint(0, 4, (200,)), torch.randn(200)
    net = MultiTask(6, 4)
    params = [
        {"params": [p for n, p in net.named_parameters() if "bias" not in n], "weight_decay": 1e-2},
        {"params": [p for n, p in net.named_parameters() if "bias" in n], "weight_decay": 0.0},
    ]
    opt = torch.optim.AdamW(params, lr=2e-3)
    for e in range(EPOCHS):
        print(e, {k: round(v, 4) for k, v in train_one_epoch(net, opt, xs, ys, vs).items()})

main()
