"""Text generation with a key-value cache that stays on the device.

A causal language model of transformers becomes two graphs of one PEF, which share weights and
cache: the prompt graph reads a prompt of fixed length and writes the first rows of the cache, the
token graph reads one token per sequence and writes one row. A cache has a fixed number of rows;
those behind a sequence's last token are masked, so that sequences of a batch may differ in length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.graph import FwdGraph

__all__ = ["Decoder", "Generator", "Sizes"]

PROMPT, TOKEN = "prompt", "token"
"""Names of the graphs."""

Cache = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of every layer, (batch, heads, rows, width of a head)."""


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


class _Rows:
    """What the layers of a language model are given for their cache."""

    def __init__(self, positions: Tensor, rows: int, before: Cache | None) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        self._positions = positions
        self._rows = rows
        self._before = before

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Keep a layer's new rows; returns all that it shall attend to."""
        if self._before is None:
            behind = (0, 0, 0, self._rows - keys.shape[2])
            self.layers.append((nn.functional.pad(keys, behind), nn.functional.pad(values, behind)))
            return keys, values
        old_keys, old_values = self._before[layer]
        self.layers.append((self._put(old_keys, keys), self._put(old_values, values)))
        return self.layers[-1]

    def _put(self, old: Tensor, new: Tensor) -> Tensor:
        batch, heads, _, _ = old.shape
        places = (
            torch.arange(batch)[:, None, None],
            torch.arange(heads)[None, :, None],
            self._positions[:, None, :],
        )
        return old.index_put(places, new)


class Decoder(nn.Module):
    """A causal language model under plain tensors: its cache comes in and goes out."""

    def __init__(self, model: PreTrainedModel, rows: int, *, greedy: bool = False) -> None:
        """Take a model of transformers that has its layers' cache through ``update``.

        Args:
            model: Llama, Qwen, Mistral, GPT-2 and the like.
            rows: Of the cache.
            greedy: Choose the next token in the graph. Otherwise logits are returned.
        """
        super().__init__()
        self.model = model
        self.rows = rows
        self.greedy = greedy

    def forward(
        self, tokens: Tensor, position: Tensor, cache: Cache | None = None
    ) -> tuple[Tensor, ...]:
        """Read tokens.

        Args:
            tokens: int64, (batch, prompt), with anything behind the end of a shorter one; or
                (batch, 1) with a cache.
            position: int64, (batch, 1): number of tokens in the prompt; or, with a cache, the row
                that the token gets.
            cache: What tokens before left; None for a prompt.

        Returns:
            Logits (batch, vocabulary); or, if greedy, the next token (batch, 1) and its position
            (batch, 1). Behind them the cache, flat.
        """
        batch, length = tokens.shape
        if cache is None:
            positions = torch.arange(length).expand(batch, length)
            visible = torch.arange(length) <= positions[:, :, None]
            last, behind = position - 1, position
        else:
            positions = position
            visible = torch.arange(self.rows) <= positions[:, :, None]
            last, behind = torch.zeros_like(position), position + 1
        rows = _Rows(positions, self.rows, cache)
        hidden = self.model.base_model(
            input_ids=tokens,
            attention_mask=visible[:, None],
            position_ids=positions,
            past_key_values=rows,
            use_cache=True,
        ).last_hidden_state
        if cache is None:
            hidden = hidden.gather(1, last[:, :, None].expand(batch, 1, hidden.shape[-1]))
        head = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        logits = head(hidden)[:, 0]
        flat = [tensor for layer in rows.layers for tensor in layer]
        if self.greedy:
            return logits.argmax(-1, keepdim=True), behind, *flat
        return logits, *flat


class Generator:
    """Traces a language model's two graphs, and generates text with them."""

    def __init__(self, model: PreTrainedModel, sizes: Sizes, *, greedy: bool = False) -> None:
        """Trace both graphs, and add them to ``samba.session``.

        Args:
            model: In evaluation mode; it is converted in place.
            sizes: Of the graphs.
            greedy: Choose tokens on the device, where they and their positions stay: a step then
                copies one token per sequence to the host, and nothing from it.
        """
        self.sizes = sizes
        self.greedy = greedy
        self._decoder = Decoder(model, sizes.rows, greedy=greedy).eval()
        samba.from_torch_model_(self._decoder)
        prompt = (self._integers("prompt", sizes.prompt), self._integers("prompt_length", 1))
        self._prompt = self._trace(PROMPT, prompt)
        cache = self._prompt[2 if greedy else 1 :]
        before = [_like(tensor) for tensor in cache]
        pairs = tuple(zip(before[::2], before[1::2], strict=True))
        token = (self._integers("token", 1), self._integers("position", 1), pairs)
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
        lines = [list(prompt) for prompt in prompts]
        places = [min(len(line), self.sizes.prompt) for line in lines]
        chosen = self._read(lines, places)
        while True:
            own = [place == len(line) for line, place in zip(lines, places, strict=True)]
            for line, token, new in zip(lines, chosen, own, strict=True):
                line += [token] * new
            made = [_cut(lines[i][len(prompts[i]) :], count, end) for i in range(len(lines))]
            if None not in made:
                return [[*prompt, *(new or ())] for prompt, new in zip(prompts, made, strict=True)]
            given = [line[place] for line, place in zip(lines, places, strict=True)]
            # The device has the tokens that it chose itself, and their positions.
            chosen = self._step(None if self.greedy and all(own) else (given, places))
            places = [place + 1 for place in places]

    def _read(self, lines: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[int]:
        """Run the prompt graph; returns the token that it chooses for each sequence."""
        width = self.sizes.prompt
        padded = [[*line[:width], *[0] * (width - len(line))] for line in lines]
        return self._run(PROMPT, self._prompt, prompt=padded, prompt_length=_column(lengths))

    def _step(self, given: tuple[Sequence[int], Sequence[int]] | None) -> list[int]:
        """Run the token graph, with tokens and positions or with those on the device."""
        if given is None:
            return self._run(TOKEN, self._token)
        tokens, positions = given
        return self._run(TOKEN, self._token, token=_column(tokens), position=_column(positions))

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
        fronts = ("token", "position") if self.greedy else ("",)
        for output, place in zip(outputs, fronts, strict=False):
            output.sn_region_name = place or output.sn_name
        for index, output in enumerate(outputs[len(fronts) :]):
            output.sn_region_name = f"cache_{index // 2}_{('keys', 'values')[index % 2]}"
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
        longest = max(map(len, prompts)) + count - 1
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
