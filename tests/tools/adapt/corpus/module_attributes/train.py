import os
import tempfile

import numpy as np
import torch

import losses
import models
import utils

utils.seed_everything(11)
signals = np.random.randn(50, 12).astype("float32")
loader = torch.utils.data.DataLoader(torch.from_numpy(signals), batch_size=10, shuffle=True)

model = models.build(n_hidden=5)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=0.0)

for epoch in range(4):
    running = 0.0
    for batch in loader:
        optimizer.zero_grad()
        output, code = model(batch)
        loss = losses.reconstruction_loss(output, batch, code)
        loss.backward()
        optimizer.step()
        running += loss.item()
    utils.log("epoch", loss=running / len(loader))

with tempfile.TemporaryDirectory() as folder:
    utils.save_checkpoint(model, os.path.join(folder, "model.pt"))
    print("saved")
