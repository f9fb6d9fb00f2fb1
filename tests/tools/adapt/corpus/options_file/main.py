import torch

from options import parse
from solver import solve

if __name__ == "__main__":
    opt = parse()
    torch.manual_seed(5)
    scorer = solve(opt)
    print(sum(p.numel() for p in scorer.parameters()), "parameters")
