"""A classifier of two moons; settings are constants at the top."""
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import make_moons

BATCH_SIZE = 32
EPOCHS = 3
LEARNING_RATE = 1e-2

torch.manual_seed(42)
device = "cuda" if torch.cuda.is_available() else "cpu"

X, y = make_moons(256, noise=0.2, random_state=0)
X, y = torch.from_numpy(X).float(), torch.from_numpy(y).long()
loader = DataLoader(TensorDataset(X, y), batch_size=BATCH_SIZE, shuffle=True)

model = nn.Sequential(
    nn.Linear(2, 16),
    nn.ReLU(),
    nn.Linear(16, 16),
    nn.ReLU(),
    nn.Linear(16, 2),
).to(device)
print(model)

loss_fn = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)


def train_loop(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)

        # Compute prediction error
        pred = model(X)
        loss = loss_fn(pred, y)

        # Backpropagation
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

        if batch % 4 == 0:
            loss, current = loss.item(), (batch + 1) * len(X)
            print(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")


def test_loop(dataloader, model, loss_fn):
    model.eval()
    size = len(dataloader.dataset)
    num_batches = len(dataloader)
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            X, y = X.to(device), y.to(device)
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    test_loss /= num_batches
    correct /= size
    print(f"Test Error: \n Accuracy: {(100*correct):>0.1f}%, Avg loss: {test_loss:>8f} \n")


for t in range(EPOCHS):
    print(f"Epoch {t+1}\n-------------------------------")
    train_loop(loader, model, loss_fn, optimizer)
    test_loop(loader, model, loss_fn)
print("Done!")
torch.save(model.state_dict(), "model.pth")
