import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.norm = nn.LayerNorm(d_hidden)
        self.fc2 = nn.Linear(d_hidden, d_out)

    def forward(self, x):
        return self.fc2(F.gelu(self.norm(self.fc1(x))))


class Trainer:
    """Keeps everything that a training needs."""

    def __init__(self, model, train_data, optimizer, device, log_every=4):
        self.model = model.to(device)
        self.train_data = train_data
        self.optimizer = optimizer
        self.device = device
        self.log_every = log_every
        self.history = []

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        for i, (source, targets) in enumerate(self.train_data):
            source = source.to(self.device)
            targets = targets.to(self.device)
            loss = self._run_batch(source, targets)
            self.history.append(loss)
            if i % self.log_every == 0:
                print("epoch", epoch, "step", i, "loss", round(loss, 4))

    def save(self, path):
        torch.save(self.model.state_dict(), path)

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)
        self.save("checkpoint.pt")


def main():
    torch.manual_seed(7)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    dataset = torch.utils.data.TensorDataset(torch.randn(96, 10), torch.randint(0, 4, (96,)))
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True, pin_memory=True)
    model = MLP(10, 32, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Trainer(model, loader, optimizer, device)
    trainer.train(4)


if __name__ == "__main__":
    main()
