import torch
import torch.nn as nn
from torch.cuda import amp
from torch.utils.data import DataLoader, TensorDataset
import argparse, sys

def main():
    p = argparse.ArgumentParser()
    p.add_argument("-amp", action="store_true")
    args = p.parse_args()
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8, shuffle=True)
    scaler = None
    if args.amp:
        scaler = amp.GradScaler()
    print("called as", len(" ".join(sys.argv)) > 0)
    for epoch in range(4):
        for img, label in loader:
            optimizer.zero_grad()
            # the step
            if scaler is not None:
                with amp.autocast():
                    out = net(img)
                    loss = nn.functional.cross_entropy(out, label)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                out = net(img)  # plain
                loss = nn.functional.cross_entropy(out, label)
                loss.backward()
                optimizer.step()
            print(loss.item(), (out.argmax(1) == label).float().mean().item())

main()
