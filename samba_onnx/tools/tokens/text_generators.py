"""Language models that are planned twice: to read a prompt, and to write a token."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from samba_onnx.compiling.model_sources import is_configuration
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.torch_loading import load_causal_model
from samba_onnx.errors import ModelError, UsageError
from samba_onnx.passes.rewrites.assume_lengths import LengthRole, length_roles, positions
from samba_onnx.passes.rewrites.interface import dimensions
from samba_onnx.pef.manifest import Manifest
from samba_onnx.safety.files import printable

__all__ = ["GenerationSizes", "TextGenerator", "open_generator"]


CONTEXT: Final = 4096
"""Tokens that a cache has room for, where the model allows more and nobody says."""
PROMPT: Final = 512
"""Tokens of a prompt, likewise."""


@dataclass(frozen=True)
class GenerationSizes:
    """What the two programs are planned for."""

    batch: int
    """Texts at a time."""
    prompt: int
    """Tokens of a prompt."""
    context: int
    """Tokens that the cache has room for."""


class TextGenerator(ABC):
    """A language model with a cache of keys and values."""

    name: str
    """For people."""
    positions: int | None
    """Tokens that a text may have; None where the model does not say."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures has to know of them."""

    def sizes(self, batch: int, prompt: int | None, context: int | None) -> GenerationSizes:
        """Return the sizes that the user states, and useful ones for the others.

        Args:
            batch: Texts at a time.
            prompt: Tokens of a prompt; None if nobody says.
            context: Tokens of the cache; None if nobody says.

        Raises:
            UsageError: They contradict each other, or the model.
        """
        # A prompt that is stated makes room for itself; a context that is stated does not grow.
        least = 2 if prompt is None else prompt
        room = context or max(min(self.positions or CONTEXT, CONTEXT), least)
        if self.positions is not None and room > self.positions:
            raise UsageError(
                f"{room:,} tokens are more than the {self.positions:,} that {printable(self.name)} has positions for"
            )
        read = prompt or min(PROMPT, max(room // 2, 2))
        if read > room:
            raise UsageError(
                f"a prompt of {read:,} tokens does not fit into a cache of {room:,}: give --prompt below --context"
            )
        return GenerationSizes(batch, read, room)

    @abstractmethod
    def prompt(self, sizes: GenerationSizes, options: CompileOptions) -> Manifest:
        """Plan the program that reads prompts."""

    @abstractmethod
    def token(self, sizes: GenerationSizes, options: CompileOptions) -> Manifest:
        """Plan the program that reads a token of each text, with a full cache."""

    @abstractmethod
    def cache_bytes(self, sizes: GenerationSizes) -> int:
        """Return what the cache takes for all texts."""


def open_generator(model: str, progress: Callable[[str], None]) -> TextGenerator:
    """Return a language model of either kind.

    Args:
        model: A configuration or an ONNX model.
        progress: Called with the name of each step before it begins.

    Raises:
        UsageError: torch or transformers are not installed, or the file cannot be read.
        ModelError: It is no language model.
    """
    if not is_configuration(model):
        return OnnxGenerator(model)
    return ConfiguredGenerator(model, progress)


class ConfiguredGenerator(TextGenerator):
    """A causal language model of transformers: its cache stays on the device."""

    def __init__(self, source: str, progress: Callable[[str], None]) -> None:
        """Build the model without values of weights.

        Args:
            source: A ``config.json``, or the folder of one.
            progress: Called with the name of each step before it begins.

        Raises:
            UsageError: torch or transformers are not installed, or the file cannot be read.
            ModelError: It is no configuration of a causal language model.
        """
        model = self._model = load_causal_model(source, progress)
        self.name, self.positions = model.name, model.positions
        if model.window:
            self.notes = (
                f"layers with a window of {model.window:,} tokens are planned as if they kept all of them: where "
                "texts are longer, times and the cache are at most as said",
            )

    def prompt(self, sizes: GenerationSizes, options: CompileOptions) -> Manifest:
        """Plan a program whose cache has as many rows as the prompt has tokens."""
        # As the programs of published figures: rows behind a prompt are another program's to write.
        return self._model.plan(sizes.batch, sizes.prompt, sizes.prompt, options)

    def token(self, sizes: GenerationSizes, options: CompileOptions) -> Manifest:
        """Plan a program that attends to all rows, full or not: shapes are static."""
        return self._model.plan(sizes.batch, 1, sizes.context, options)

    def cache_bytes(self, sizes: GenerationSizes) -> int:
        """Return what the cache takes for all texts."""
        return self._model.cache_bytes(sizes.batch, sizes.context)


class OnnxGenerator(TextGenerator):
    """An ONNX model whose cache is given and returned: it crosses the link in every run."""

    def __init__(self, path: str) -> None:
        """Find out which dimensions count what.

        Args:
            path: The model's file.

        Raises:
            ModelError: It has no cache, or dimensions without names.
        """
        from samba_onnx.loading.model import load_model

        # Names and shapes of inputs are all that is looked at; each plan loads the model anew, as passes change it.
        model = load_model(path).model
        self.name, self._path = printable(os.path.basename(path)), path
        self._inputs = tuple(model.graph.inputs)
        self.positions = positions(model) or None
        self._roles = length_roles(model)
        self._refuse_other()
        self.notes = (
            "the cache is given to every run and returned by it, over the link to the host; that of a Hugging Face "
            "configuration stays on the device",
            "prompts are planned behind a cache of one token: a dimension cannot be 0",
        )

    def prompt(self, sizes: GenerationSizes, options: CompileOptions) -> Manifest:
        """Plan a run that reads a prompt behind a cache of one token."""
        return self._planned(sizes, sizes.prompt, 1, options)

    def token(self, sizes: GenerationSizes, options: CompileOptions) -> Manifest:
        """Plan a run that reads the last token that there is room for."""
        return self._planned(sizes, 1, sizes.context - 1, options)

    def cache_bytes(self, sizes: GenerationSizes) -> int:
        """Return the bytes of the inputs that hold the cache, when it is full."""
        known = self._dimensions(sizes, 1, sizes.context)
        # Of full precision or not: the type of the input, whatever the device computes in.
        total = 0
        for value in filter(self._is_cache, self._inputs):
            shape = dimensions(value.shape) or ()
            elements = math.prod(dim if isinstance(dim, int) else known[str(dim)] for dim in shape)
            total += elements * (0 if value.dtype is None else int(value.dtype.itemsize))
        return total

    def _refuse_other(self) -> None:
        """Refuse a model that does not generate, as far as its inputs tell."""
        # A model of fixed lengths generates, too, but nothing tells which of its inputs are the cache.
        found = set(self._roles.values())
        if not {LengthRole.READ, LengthRole.CACHED} <= found:
            names = ", ".join(printable(value.name or "") for value in self._inputs[:4])
            raise ModelError(
                f"{self.name}: among its inputs ({names}) there is no cache that grows with a text: expected a dynamic "
                "dimension such as sequence_length, and one such as past_sequence_length; export it with a cache, or "
                "give the config.json of Hugging Face"
            )
        nameless = sorted(name for name in self._roles if "[" in name)
        if nameless:
            raise ModelError(
                f"{self.name}: dimension {printable(nameless[0])} has no name, by which its size is stated: export it "
                "with named dimensions (dynamic_axes or dynamic_shapes of torch.onnx.export)"
            )

    def _is_cache(self, value: ir.Value) -> bool:
        shape = dimensions(value.shape) or ()
        # A mask names both lengths, and is no cache.
        return len(shape) > 2 and any(
            self._roles.get(str(dim)) is LengthRole.CACHED for dim in shape
        )

    def _dimensions(self, sizes: GenerationSizes, read: int, cached: int) -> dict[str, int]:
        """Return the size of every dynamic dimension of inputs but sums, which follow from their terms."""
        by_role = {
            LengthRole.READ: read,
            LengthRole.CACHED: cached,
            LengthRole.WHOLE: read + cached,
        }
        sizes_by_name = {
            name: by_role[role] for name, role in self._roles.items() if "+" not in name
        }
        # Every first dimension that counts no sequence: of inputs, positions and cache it is the number of texts.
        batches = {
            str(shape[0])
            for value in self._inputs
            if (shape := dimensions(value.shape)) and not isinstance(shape[0], int)
        }
        return dict.fromkeys(batches - self._roles.keys(), sizes.batch) | sizes_by_name

    def _planned(
        self, sizes: GenerationSizes, read: int, cached: int, options: CompileOptions
    ) -> Manifest:
        from samba_onnx.compiling.compiler import analyze

        return analyze(
            self._path, options=options.replace(dims=self._dimensions(sizes, read, cached))
        )
