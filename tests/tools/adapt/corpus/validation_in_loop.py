import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, Subset

torch.manual_seed(10)
x, y = torch.randn(150, 4), torch.randn(150, 1)
full = TensorDataset(x, y)
loaders = DataLoader(Subset(full, range(0, 120)), batch_size=32, shuffle=True), DataLoader(Subset(full, range(120, 150)), batch_size=32)
train_loader, valid_loader = loaders
model = nn.Sequential(nn.Linear(4, 20), nn.Sigmoid(), nn.Linear(20, 1))
criterion = nn.HuberLoss(delta=0.7)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
best = float("inf")
train_losses, valid_losses = [], []
for epoch in range(7):
    running_loss = 0
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * inputs.shape[0]
    else:
        valid_loss = 0
        with torch.no_grad():
            model.eval()
            for inputs, targets in valid_loader:
                valid_loss += criterion(model(inputs), targets)
        model.train()
        train_losses.append(running_loss / len(train_loader))
        valid_losses.append(valid_loss / len(valid_loader))
        if valid_losses[-1] < best:
            best = valid_losses[-1]
            torch.save({"epoch": epoch, "model_state_dict": model.state_dict(),
                        "optimizer_state_dict": optimizer.state_dict(), "loss": loss}, "best.tar")
        print("Epoch: {}/{}.. ".format(epoch + 1, 7),
              "Training Loss: {:.3f}.. ".format(train_losses[-1]),
              "Test Loss: {:.3f}.. ".format(valid_losses[-1]))
