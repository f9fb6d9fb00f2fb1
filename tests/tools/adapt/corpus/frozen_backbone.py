import torch
from torch import nn, optim


def build_model():
    model = nn.ModuleDict({"features": nn.Sequential(nn.Linear(10, 20), nn.ReLU()), "classifier": nn.Linear(20, 3)})
    return model


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = build_model()

    def forward(self, x):
        return self.parts["classifier"](self.parts["features"](x))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Wrapper()
    for param in model.parts["features"].parameters():
        param.requires_grad = False
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss()
    X, Y = torch.randn(60, 10), torch.randint(0, 3, (60,))
    for epoch in range(6):
        permutation = torch.randperm(X.size()[0])
        for i in range(0, X.size()[0], 15):
            indices = permutation[i:i + 15]
            batch_x, batch_y = X[indices], Y[indices]
            optimizer.zero_grad()
            outputs = model.forward(batch_x)
            loss = criterion(outputs, batch_y)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
