import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPOCHS = 3
BATCH_SIZE = 8
LEARNING_RATE = 3e-3
HIDDEN = 12
