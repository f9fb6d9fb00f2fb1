import logging
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, random_split

logging.basicConfig(level=logging.INFO, format='%(message)s')


class DiceLoss(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, logits, mask):
        p = torch.sigmoid(logits)
        inter = (p * mask).sum(dim=(1, 2, 3))
        union = p.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3))
        return (1 - (2 * inter + self.eps) / (union + self.eps)).mean()


class Squares(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        mask = torch.zeros(1, 16, 16)
        r, c = torch.randint(0, 10, (2,), generator=g)
        mask[:, r:r + 6, c:c + 6] = 1
        return {'image': mask + 0.3 * torch.randn(1, 16, 16, generator=g), 'mask': mask}


class TinyUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU())
        self.mid = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(6, 12, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2))
        self.up = nn.Conv2d(18, 1, 3, padding=1)

    def forward(self, x):
        d = self.down(x)
        return self.up(torch.cat([d, self.mid(d)], dim=1))


def train_model(model, device, epochs: int = 4, batch_size: int = 8, learning_rate: float = 1e-2, val_percent: float = 0.2,
                amp: bool = False, gradient_clipping: float = 1.0):
    dataset = Squares()
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=batch_size, pin_memory=True)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, batch_size=batch_size)
    optimizer = optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=1e-8, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'min', patience=5)
    grad_scaler = torch.cuda.amp.GradScaler(enabled=amp)
    criterion = nn.BCEWithLogitsLoss()
    dice = DiceLoss()
    global_step = 0
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        for batch in train_loader:
            images, true_masks = batch['image'], batch['mask']
            images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            true_masks = true_masks.to(device=device, dtype=torch.float32)
            with torch.autocast(device.type if device.type != 'mps' else 'cpu', enabled=amp):
                masks_pred = model(images)
                loss = criterion(masks_pred, true_masks)
                loss += dice(masks_pred, true_masks)
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            global_step += 1
            epoch_loss += loss.item()
        model.eval()
        score = 0
        with torch.no_grad():
            for batch in val_loader:
                score += dice(model(batch['image']), batch['mask']).item()
        scheduler.step(score)
        logging.info(f'epoch {epoch} loss {epoch_loss:.4f} dice {score:.4f}')


if __name__ == '__main__':
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.manual_seed(0)
    model = TinyUNet()
    model = model.to(memory_format=torch.channels_last)
    model.to(device=device)
    train_model(model=model, device=device)
