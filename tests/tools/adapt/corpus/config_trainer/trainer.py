import torch
import torch.nn as nn

import config


class Trainer:
    def __init__(self, model, train_loader, val_loader=None):
        self.model = model.to(config.DEVICE)
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.criterion = nn.SmoothL1Loss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.LEARNING_RATE)
        self.history = []

    def _step(self, x, y):
        self.optimizer.zero_grad()
        prediction = self.model(x)
        loss = self.criterion(prediction, y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self):
        for epoch in range(config.EPOCHS):
            self.model.train()
            losses = []
            for x, y in self.train_loader:
                x = x.to(config.DEVICE)
                y = y.to(config.DEVICE)
                losses.append(self._step(x, y))
            self.history.append(sum(losses) / len(losses))
            print(f"Epoch {epoch + 1}/{config.EPOCHS} loss={self.history[-1]:.5f}")
        return self.history
