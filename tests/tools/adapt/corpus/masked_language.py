import torch
import torch.nn as nn


class TinyLM(nn.Module):
    def __init__(self, vocab, width=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Parameter(torch.zeros(12, width))
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 32, batch_first=True, dropout=0.0),
                                         num_layers=1, enable_nested_tensor=False)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids, mask):
        return self.out(self.enc(self.tok(ids) + self.pos, src_key_padding_mask=mask))


def mask_tokens(ids, rate=0.3):
    chosen = torch.rand(ids.shape) < rate
    labels = ids.clone()
    labels[~chosen] = -100
    ids = ids.clone()
    ids[chosen] = 1
    return ids, labels


def main():
    torch.manual_seed(0)
    model = TinyLM(20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    for step in range(22):
        ids = torch.randint(2, 20, (6, 12))
        padding = torch.zeros(6, 12, dtype=torch.bool)
        padding[:, -2:] = True
        corrupted, labels = mask_tokens(ids)
        labels = labels.masked_fill(padding, -100)
        logits = model(corrupted, padding)
        loss = criterion(logits.view(-1, logits.size(-1)), labels.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step={step} loss={loss.item():.4f}")


main()
