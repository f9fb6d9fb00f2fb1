from torch import nn


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class SmallVGG(nn.Module):
    def __init__(self, num_classes: int = 2):
        super().__init__()
        self.features = nn.Sequential(block(3, 6), block(6, 8))
        self.classifier = nn.Linear(8 * 2 * 2, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))
