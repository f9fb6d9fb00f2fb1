import argparse
import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--lr", default=1e-3, type=float)
parser.add_argument("--batch-size", default=20, type=int)
args = parser.parse_args()

torch.backends.cudnn.benchmark = True
torch.manual_seed(0)
use_amp = torch.cuda.is_available()
device = torch.device("cuda" if use_amp else "cpu")

data = TensorDataset(torch.randn(160, 12), torch.randint(0, 5, (160,)))
train_loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=0, pin_memory=True)

net = nn.Sequential(nn.Linear(12, 40), nn.BatchNorm1d(40), nn.ReLU(inplace=True), nn.Linear(40, 5)).to(device)
opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.05, betas=(0.9, 0.95))
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=args.epochs * len(train_loader))
scaler = GradScaler("cuda", enabled=use_amp)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)

for epoch in range(args.epochs):
    net.train()
    hits = 0
    for images, targets in train_loader:
        images = images.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)
        opt.zero_grad(set_to_none=True)
        with autocast("cuda", enabled=use_amp):
            logits = net(images)
            loss = criterion(logits, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        scaler.step(opt)
        scaler.update()
        sched.step()
        hits += (logits.argmax(dim=1) == targets).sum().item()
    print("epoch %d accuracy %.3f lr %.5f" % (epoch, hits / len(data), sched.get_last_lr()[0]))
