from common import criterion, model, optimizer


def train_step(x, y):
    logits = model(x)
    loss = criterion(logits.transpose(1, 2), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
