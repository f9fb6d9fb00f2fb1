"""Digits with Lightning: a module, two loaders, a scheduler."""
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitClassifier(pl.LightningModule):
    def __init__(self, width: int = 16, lr: float = 0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.net(x)

    def _shared_step(self, batch):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        acc = (logits.argmax(-1) == y).float().mean()
        return loss, acc

    def training_step(self, batch, batch_idx):
        loss, acc = self._shared_step(batch)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", acc)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, acc = self._shared_step(batch)
        self.log_dict({"val_loss": loss, "val_acc": acc})

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        return [optimizer], [scheduler]


def main():
    pl.seed_everything(7)
    x = torch.randn(96, 10)
    y = x[:, :3].argmax(-1)
    train = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=8, shuffle=True)
    val = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=8)
    model = LitClassifier(width=12)
    trainer = pl.Trainer(max_epochs=3, gradient_clip_val=0.5, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False)
    trainer.fit(model, train, val)
    print(f"done {model.net[0].weight.abs().sum().item():.3f}")


if __name__ == "__main__":
    main()
