import torch
from torch import nn

torch.manual_seed(9)
vocabulary = sorted(set("the quick brown fox jumps over the lazy dog"))
index = {c: i for i, c in enumerate(vocabulary)}
device = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(vocabulary), 8)
        self.gru = nn.GRU(8, 16, batch_first=True)
        self.out = nn.Linear(16, len(vocabulary))

    def forward(self, x):
        h, _ = self.gru(self.embedding(x))
        return self.out(h)


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()
