import torch
import torch.nn as nn


class Config:
    lr = 0.01
    momentum = 0.9
    label_smoothing = 0.1
    epochs = 3
    batch_size = 10
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


cfg = Config()


class Engine:
    def __init__(self, model, optimizer, loss_fn, cfg):
        self.model, self.optimizer, self.loss_fn, self.cfg = model, optimizer, loss_fn, cfg

    def train(self, loader):
        self.model.train()
        final_loss = 0
        for data in loader:
            self.optimizer.zero_grad()
            inputs = data['x'].to(self.cfg.device)
            targets = data['y'].to(self.cfg.device)
            loss = self.loss_fn(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()
            final_loss += loss.item()
        return final_loss / len(loader)

    def evaluate(self, loader):
        self.model.eval()
        with torch.no_grad():
            return sum(self.loss_fn(self.model(d['x']), d['y']).item() for d in loader) / len(loader)


def run():
    torch.manual_seed(0)
    rows = [{'x': torch.randn(7), 'y': torch.randint(0, 4, ())} for _ in range(70)]
    loader = torch.utils.data.DataLoader(rows, batch_size=cfg.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(7, 14), nn.BatchNorm1d(14), nn.ReLU(), nn.Linear(14, 4)).to(cfg.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=cfg.momentum)
    engine = Engine(model, optimizer, nn.CrossEntropyLoss(label_smoothing=cfg.label_smoothing), cfg)
    for epoch in range(cfg.epochs):
        print(epoch, engine.train(loader), engine.evaluate(loader))


if __name__ == '__main__':
    run()
