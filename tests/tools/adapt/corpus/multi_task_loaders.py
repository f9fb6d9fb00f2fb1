import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
source = DataLoader(TensorDataset(torch.randn(48, 5), torch.randint(0, 2, (48,))), batch_size=8, shuffle=True)
target = DataLoader(TensorDataset(torch.randn(48, 5) + 1), batch_size=8, shuffle=True)
feature = nn.Sequential(nn.Linear(5, 12), nn.ReLU())
classifier = nn.Linear(12, 2)
domain = nn.Linear(12, 1)
optimizer = torch.optim.SGD(list(feature.parameters()) + list(classifier.parameters()) + list(domain.parameters()), lr=0.05)
for epoch in range(4):
    for (xs, ys), (xt,) in zip(source, target):
        fs, ft = feature(xs), feature(xt)
        loss_class = F.cross_entropy(classifier(fs), ys)
        scores = torch.cat([domain(fs), domain(ft)]).squeeze(1)
        truth = torch.cat([torch.zeros(len(xs)), torch.ones(len(xt))])
        loss_domain = F.binary_cross_entropy_with_logits(scores, truth)
        loss = loss_class + 0.1 * loss_domain
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{epoch}: {loss_class:.4f} {loss_domain:.4f}")
