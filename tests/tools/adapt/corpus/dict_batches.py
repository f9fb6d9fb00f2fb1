import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    seed: int = 17
    batch_size: int = 12
    lr: float = 2e-3
    epochs: int = 3
    vocab: int = 50
    length: int = 9


class Reviews(Dataset):
    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.ids = rng.integers(0, cfg.vocab, size=(96, cfg.length))
        self.labels = (self.ids.sum(axis=1) % 2).astype("int64")

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": torch.tensor(self.ids[index]), "label": torch.tensor(self.labels[index])}


class Classifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg.vocab, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, input_ids):
        return self.out(self.encoder(self.embedding(input_ids)).mean(dim=1))


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def train_one_epoch(model, loader, optimizer, criterion, device):
    model.train()
    losses, correct, seen = [], 0, 0
    for batch in loader:
        ids = batch["input_ids"].to(device)
        label = batch["label"].to(device)
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids)
        loss = criterion(logits, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        correct += (logits.argmax(-1) == label).sum().item()
        seen += label.size(0)
    return sum(losses) / len(losses), correct / seen


def main():
    cfg = Config()
    seed_everything(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Reviews(cfg), batch_size=cfg.batch_size, shuffle=True)
    model = Classifier(cfg).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        loss, accuracy = train_one_epoch(model, loader, optimizer, criterion, device)
        print(f"epoch={epoch} loss={loss:.4f} acc={accuracy:.3f}")


if __name__ == "__main__":
    main()
