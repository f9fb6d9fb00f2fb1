import argparse, sys
import torch as th
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data as tud


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    data = p.add_argument_group("data")
    data.add_argument("--rows", type=int, default=120)
    model = p.add_argument_group("model")
    model.add_argument("--width", type=int, default=18)
    p.add_argument("-n", "--num-epochs", type=int, default=3)
    p.add_argument("--step-size", type=float, default=0.02)
    p.add_argument("--clip", type=float, default=0.0)
    p.add_argument("--quiet", action="store_true")
    return p.parse_args()


def main():
    a = parse_args()
    th.manual_seed(5)
    X = th.randn(a.rows, 8)
    Y = th.randint(0, 2, (a.rows,)).float()
    loader = tud.DataLoader(tud.TensorDataset(X, Y), batch_size=20, shuffle=True)
    f = nn.Sequential(nn.Linear(8, a.width), nn.Mish(), nn.Linear(a.width, 1))
    opt = th.optim.AdamW(f.parameters(), lr=a.step_size)
    for e in range(a.num_epochs):
        s = n = 0
        for xb, yb in loader:
            logit = f(xb).squeeze(1)
            L = F.binary_cross_entropy_with_logits(logit, yb)
            opt.zero_grad()
            L.backward()
            if a.clip > 0:
                nn.utils.clip_grad_norm_(f.parameters(), a.clip)
            opt.step()
            s += L.item() * len(yb)
            n += len(yb)
        if not a.quiet:
            print("epoch", e, "loss", s / n, file=sys.stdout)


if __name__ == "__main__":
    main()
