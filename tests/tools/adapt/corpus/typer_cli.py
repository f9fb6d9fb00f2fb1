"""Fit a small tagger; options by typer."""
import typer
import torch
from torch import nn

app = typer.Typer()


class Tagger(nn.Module):
    def __init__(self, words: int, tags: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


@app.command()
def train(
    learning_rate: float = typer.Option(0.01, help="rate of AdamW"),
    steps: int = 12,
    width: int = typer.Option(8, help="units"),
    quiet: bool = False,
):
    torch.manual_seed(0)
    tagger = Tagger(30, 5, width)
    optim = torch.optim.AdamW(tagger.parameters(), lr=learning_rate)
    for step in range(steps):
        ids = torch.randint(0, 30, (4, 9))
        tags = ids % 5
        optim.zero_grad()
        loss = nn.functional.cross_entropy(tagger(ids).flatten(0, 1), tags.flatten())
        loss.backward()
        optim.step()
        if step % 4 == 0 and not quiet:
            typer.echo(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    app()
