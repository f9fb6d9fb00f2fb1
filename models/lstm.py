"""A text classifier: embedding, bidirectional LSTM, linear layer over the pooled states."""

from torch import Tensor, nn

from models.example import Example, InputSpec, Variant
from models.initialization import scale_output, spread_weights

__all__ = ["LstmClassifier", "build"]


class LstmClassifier(nn.Module):
    """Class logits of token sequences."""

    def __init__(self, vocabulary: int, width: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ids (batch, sequence) to logits (batch, classes)."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states.mean(dim=1))
        return logits


def build(variant: Variant = "full", seed: int = 0) -> Example:
    """Build two layers of 256 units each way over 128 tokens, or of 8 over 6 when tiny.

    Args:
        variant: ``full`` or ``tiny``.
        seed: The seed of weights and inputs.

    Returns:
        The module with its named inputs.
    """
    full = variant == "full"
    sizes = (20000, 128, 256, 2, 4) if full else (50, 8, 8, 2, 3)
    module = LstmClassifier(*sizes).eval()
    spread_weights(module, seed, gain=2.0)
    shape = (1, 128) if full else (2, 6)
    spec = InputSpec("tokens", shape, ("batch", "sequence"), "tokens", sizes[0])
    example = Example(module, (spec,), ("logits",), seed)
    scale_output(module, example.inputs, module.head)
    return example
