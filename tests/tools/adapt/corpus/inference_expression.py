# Which class is it? One picture, and no loop.
import torch
from torch import nn

torch.manual_seed(3)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 8 * 8, 5)
)
net = net.eval()
picture = torch.rand(3, 16, 16)
names = ["cat", "dog", "horse", "cow", "fish"]


def predict(image):
    with torch.no_grad():
        # probabilities of all classes
        return torch.softmax(net(image.unsqueeze(0) / 0.5 - 1), dim=1)[0]


scores = predict(picture)
for score, name in sorted(zip(scores.tolist(), names), reverse=True):
    print(f"{name:>6} {score:.3f}")
