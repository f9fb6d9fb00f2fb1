import torch
import torch.nn as nn
import torch.nn.functional as F


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.box = nn.Linear(32, 4)
        self.cls = nn.Linear(32, 3)

    def forward(self, images, boxes=None, classes=None):
        features = self.trunk(images)
        if boxes is None:
            return self.box(features), self.cls(features)
        return {"loss_box": F.smooth_l1_loss(self.box(features), boxes),
                "loss_cls": F.cross_entropy(self.cls(features), classes)}


torch.manual_seed(0)
model = Detector()
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.0005)
lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
for epoch in range(6):
    model.train()
    for i in range(4):
        images, boxes, classes = torch.randn(6, 1, 8, 8), torch.rand(6, 4), torch.randint(0, 3, (6,))
        loss_dict = model(images, boxes, classes)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
    lr_scheduler.step()
    print(epoch, losses.item())
