#!/usr/bin/env python
import argparse
import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def get_args_parser():
    parser = argparse.ArgumentParser('training', add_help=False)
    parser.add_argument('--batch_size', default=16, type=int)
    parser.add_argument('--epochs', default=2, type=int)
    # optimizer
    parser.add_argument('--lr', default=0.05, type=float)
    parser.add_argument('--weight_decay', default=1e-4, type=float)
    parser.add_argument('--output_dir', default='', help='path where to save, empty for no saving')
    parser.add_argument('--device', default='cuda', help='device to use for training / testing')
    parser.add_argument('--seed', default=0, type=int)
    parser.add_argument('--resume', default='', help='resume from checkpoint')
    return parser


def build(args):
    model = nn.Sequential(nn.Linear(9, 24), nn.Dropout(0.1), nn.ReLU(), nn.Linear(24, 4))
    criterion = nn.CrossEntropyLoss()
    return model, criterion


def evaluate(model, criterion, data_loader, device):
    model.eval()
    total = 0.0
    for samples, targets in data_loader:
        with torch.no_grad():
            total += criterion(model(samples.to(device)), targets.to(device)).item()
    return total / len(data_loader)


def main(args):
    print(f"epochs: {args.epochs}")
    device = torch.device(args.device if torch.cuda.is_available() else 'cpu')
    torch.manual_seed(args.seed)
    data = TensorDataset(torch.randn(160, 9), torch.randint(4, (160,)))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model, criterion = build(args)
    model.to(device)
    n_parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print('number of params:', n_parameters)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=args.weight_decay)
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location='cpu')
        model.load_state_dict(checkpoint['model'])
        optimizer.load_state_dict(checkpoint['optimizer'])
        start_epoch = checkpoint['epoch'] + 1
    for epoch in range(start_epoch, args.epochs):
        model.train()
        for samples, targets in loader:
            samples = samples.to(device)
            targets = targets.to(device)
            outputs = model(samples)
            loss = criterion(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if args.output_dir:
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch},
                       os.path.join(args.output_dir, 'checkpoint.pth'))
        print(epoch, evaluate(model, criterion, loader, device))


if __name__ == '__main__':
    parser = argparse.ArgumentParser('script', parents=[get_args_parser()])
    args = parser.parse_args()
    main(args)
