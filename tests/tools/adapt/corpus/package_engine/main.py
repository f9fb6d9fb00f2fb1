"""Classify short sequences: python main.py --epochs 3."""
import argparse

import torch
from torch.utils.data import DataLoader

from lib import TinyTransformer, evaluate, make_dataset, train_one_epoch


def get_args_parser():
    parser = argparse.ArgumentParser("sequences", add_help=False)
    parser.add_argument("--epochs", default=4, type=int)
    parser.add_argument("--batch_size", default=10, type=int)
    parser.add_argument("--lr", default=1e-3, type=float)
    parser.add_argument("--device", default="cpu")
    return parser


def main(args):
    device = torch.device(args.device)
    torch.manual_seed(0)
    loader_train = DataLoader(make_dataset("train", 20), batch_size=args.batch_size, shuffle=True)
    loader_val = DataLoader(make_dataset("val", 20), batch_size=args.batch_size)
    model = TinyTransformer(20)
    model.to(device)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, loader_train, optimizer, device, epoch)
        scheduler.step()
        print(f"    val {evaluate(model, criterion, loader_val, device):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser("sequences", parents=[get_args_parser()])
    args = parser.parse_args()
    main(args)
