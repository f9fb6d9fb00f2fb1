import argparse


def parse():
    parser = argparse.ArgumentParser(description="ranking")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--margin", type=float, default=0.5)
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    opt = parser.parse_args()
    return opt
