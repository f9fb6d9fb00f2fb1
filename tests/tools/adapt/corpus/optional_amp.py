import argparse, time
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--bs", default=8, type=int)
    p.add_argument("--accum", default=2, type=int)
    p.add_argument("--steps", default=24, type=int)
    p.add_argument("--amp", action="store_true")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()

def build():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
                         nn.Flatten(), nn.Linear(128, 5))

def main():
    args = get_args()
    torch.manual_seed(0)
    model = build().to(args.device)
    opt = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp)
    crit = nn.CrossEntropyLoss().to(args.device)
    data = TensorDataset(torch.randn(192, 3, 16, 16), torch.randint(0, 5, (192,)))
    loader = DataLoader(data, batch_size=args.bs, shuffle=True, pin_memory=args.amp, drop_last=True)
    start = time.time()
    for i, (images, labels) in enumerate(loader):
        images = images.to(args.device, non_blocking=True)
        labels = labels.to(args.device, non_blocking=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=args.amp):
            out = model(images)
            loss = crit(out, labels) / args.accum
        scaler.scale(loss).backward()
        if (i + 1) % args.accum == 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        if i % 6 == 0:
            acc = (out.argmax(1) == labels).float().mean()
            print(f"it {i} loss {loss.item() * args.accum:.4f} acc {acc:.2f}")
        if i + 1 >= args.steps:
            break

if __name__ == "__main__":
    main()
