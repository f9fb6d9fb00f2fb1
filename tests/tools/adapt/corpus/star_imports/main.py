from helper import *
from nets import *

# Homework 2: a hinge loss on a planar data set
torch.manual_seed(2)
X, Y = load_planar(96)
net = MLP([2, 10, 10, 1])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
batch = 32

for epoch in range(8):
    order = torch.randperm(len(X))
    for i in range(0, len(X), batch):
        idx = order[i:i + batch]
        scores = net(X[idx])
        loss = hinge(scores, Y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, "loss", round(loss.item(), 4))

with torch.no_grad():
    acc = ((net(X) > 0).float() == Y).float().mean()
print("accuracy %.2f" % acc)
