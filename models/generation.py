"""Text generation with a key-value cache that stays on the device.

A causal language model of transformers becomes two graphs of one PEF, which share weights and
cache: the prompt graph reads a prompt of fixed length and writes the first rows of the cache, the
token graph reads one token per sequence and adds it. What a model keeps has a fixed size: rows of keys
and values, of which a layer with a sliding window has as many as the window, and states of recurrent
layers. Shorter prompts are padded in front, as ``generate`` of transformers has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

import samba_onnx as samba
from models.decoding import Decoder
from models.rehearsal import suitable_reading
from samba_onnx.errors import UsageError
from samba_onnx.graph import FwdGraph

__all__ = ["Generator", "Sizes"]

PROMPT, TOKEN = "prompt", "token"
"""Names of the graphs."""


@dataclass(frozen=True)
class Sizes:
    """The shapes that the graphs are compiled for."""

    batch: int = 1
    prompt: int = 16
    """Tokens that the prompt graph reads at once."""
    rows: int = 64
    """Rows of the cache: most tokens that a sequence has, but for its last."""

    def __post_init__(self) -> None:
        """Refuse sizes that contradict each other."""
        if not (self.batch > 0 and 0 < self.prompt <= self.rows):
            raise UsageError(f"{self} cannot be: give 0 < batch and 0 < prompt <= rows")


class Generator:
    """Traces a language model's two graphs, and generates text with them."""

    def __init__(self, model: PreTrainedModel, sizes: Sizes, *, greedy: bool = False) -> None:
        """Trace both graphs, and add them to ``samba.session``.

        First, a few tokens are generated on the host in both ways, which tells how the model reads.

        Args:
            model: Any causal language model of transformers whose state has a fixed size; it is
                put into evaluation mode and converted in place.
            sizes: Of the graphs.
            greedy: Choose tokens on the device, where they stay: a step then copies one token per
                sequence to the host, and nothing from it.

        Raises:
            UsageError: The model cannot be generated with, for the reason stated.
        """
        self.sizes = sizes
        self.greedy = greedy
        model.eval()  # type: ignore[no-untyped-call]  # transformers annotates little
        if hasattr(model, "set_experts_implementation"):
            # All experts compute: the other implementations have sizes that depend on values.
            model.set_experts_implementation("batched_mm")
        reading = suitable_reading(model, sizes.rows, sizes.batch)
        self.pads = reading.pads
        self._decoder = Decoder(model, sizes.rows, reading, greedy=greedy).eval()
        given = [torch.zeros(sizes.batch, width, dtype=torch.int64) for width in (sizes.prompt, 1)]
        self._decoder.prepare(given[0], given[1] if self.pads else None)
        samba.from_torch_model_(self._decoder)
        padding = self._integers("padding", 1) if self.pads else None
        self._prompt = self._trace(PROMPT, (self._integers("prompt", sizes.prompt), padding))
        state = tuple(_like(tensor) for tensor in self._prompt[2:])
        token = (self._integers("token", 1), padding, self._integers("position", 1), state)
        self._token = self._trace(TOKEN, token)

    def compile(self, path: str | Path) -> str:
        """Compile the graphs.

        Args:
            path: Of the PEF.

        Returns:
            Path of the PEF.
        """
        made = samba.session.compile_multigraph(name="generation", output=path)
        assert made is not None
        return made

    def load(self, path: str | Path) -> None:
        """Prepare the device to generate, possibly in another process than ``compile``.

        Args:
            path: Of the PEF.
        """
        samba.session.init_multigraph_runtime(str(path))

    def generate(
        self, prompts: Sequence[Sequence[int]], count: int, end: int | None = None
    ) -> list[list[int]]:
        """Continue prompts with the tokens that are most probable.

        Args:
            prompts: One per sequence of the batch, of any lengths of at least one token. What a
                prompt has beyond the prompt graph's length is read token by token.
            count: Tokens to generate for each, at least one.
            end: Token behind which a continuation ends; none when None.

        Returns:
            The prompts with their continuations.

        Raises:
            UsageError: There are too many or too few prompts, or the cache has too few rows.
        """
        self._check(prompts, count)
        width = max(self.sizes.prompt, *map(len, prompts))
        missing = [width - len(prompt) for prompt in prompts]
        padded = [[0] * less + list(prompt) for less, prompt in zip(missing, prompts, strict=True)]
        chosen = self._read(padded, missing)
        for place in range(self.sizes.prompt, width):
            chosen = self._step([line[place] for line in padded])
        made: list[list[int]] = [[] for _ in prompts]
        while True:
            for new, token in zip(made, chosen, strict=True):
                new.append(token)
            cut = [_cut(new, count, end) for new in made]
            if None not in cut:
                return [[*prompt, *(new or ())] for prompt, new in zip(prompts, cut, strict=True)]
            # The device has the tokens that it chose itself.
            chosen = self._step(None if self.greedy else chosen)

    def _read(self, lines: Sequence[Sequence[int]], missing: Sequence[int]) -> list[int]:
        """Run the prompt graph; returns the token that it chooses for each sequence."""
        inputs = {"prompt": [list(line[: self.sizes.prompt]) for line in lines]}
        if self.pads:
            inputs["padding"] = _column(missing)
        return self._run(PROMPT, self._prompt, **inputs)

    def _step(self, tokens: Sequence[int] | None) -> list[int]:
        """Run the token graph, with tokens or with those on the device."""
        given = {} if tokens is None else {"token": _column(tokens)}
        return self._run(TOKEN, self._token, **given)

    def _run(
        self, graph: str, outputs: Sequence[samba.SambaTensor], **inputs: list[list[int]]
    ) -> list[int]:
        named = samba.from_named_dict({name: torch.tensor(v) for name, v in inputs.items()})
        (front,) = samba.session.run(named, outputs[0], graph_name=graph)
        made = samba.to_torch(front)
        tokens: list[int] = (made[:, 0] if self.greedy else made.argmax(-1)).tolist()
        return tokens

    def _trace(self, name: str, inputs: tuple[object, ...]) -> tuple[samba.SambaTensor, ...]:
        """Trace a graph; what both graphs have is in the same place."""
        outputs = samba.utils.trace_multigraph(self._decoder, inputs)
        front, position, *state = outputs
        front.sn_region_name = "token" if self.greedy else front.sn_name
        position.sn_region_name = "position"
        for index, output in enumerate(state):
            output.sn_region_name = f"cache_{index}"
        samba.session.add_graph(FwdGraph(inputs, outputs, name=name))
        return outputs

    def _integers(self, name: str, width: int) -> samba.SambaTensor:
        return samba.SambaTensor(shape=(self.sizes.batch, width), dtype=torch.int64, name=name)

    def _check(self, prompts: Sequence[Sequence[int]], count: int) -> None:
        if len(prompts) != self.sizes.batch or not all(prompts) or count < 1:
            raise UsageError(
                f"there are {len(prompts)} prompts and {count} tokens to generate; the graphs take "
                f"{self.sizes.batch} prompts of one token or more, and generate one or more"
            )
        lengths = set(map(len, prompts))
        if not self.pads and (len(lengths) > 1 or min(lengths) < self.sizes.prompt):
            raise UsageError(
                f"prompts of {', '.join(map(str, sorted(lengths)))} tokens were given; the model takes no "
                f"padding: give prompts of one length, of at least the {self.sizes.prompt} tokens of the "
                "prompt graph, or compile with a shorter one"
            )
        longest = max(self.sizes.prompt, *lengths) + count - 1
        if longest > self.sizes.rows:
            raise UsageError(
                f"{longest} tokens must be kept, but the cache has {self.sizes.rows} rows: "
                "generate fewer, or compile with more rows"
            )


def _like(output: samba.SambaTensor) -> samba.SambaTensor:
    """An input of the token graph in the place of a cache."""
    place = output.sn_region_name
    return samba.SambaTensor(shape=output.shape, dtype=output.dtype, name=place)


def _cut(made: list[int], count: int, end: int | None) -> list[int] | None:
    """A continuation up to its end; None if it goes on."""
    stop = made.index(end) + 1 if end is not None and end in made else count
    return made[: min(stop, count)] if len(made) >= min(stop, count) else None


def _column(numbers: Sequence[int]) -> list[list[int]]:
    return [[number] for number in numbers]
