"""Which outputs of a module are losses: those that training starts from."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import fx
from torch.utils import _pytree as pytree

from samba_onnx.errors import GradientError, UsageError
from samba_onnx.export.programs.loss_provenance import Kinship, Provenance, provenances

LossIndex: TypeAlias = int | Sequence[int]
"""Position of an output, counted over all leaves; or a path into nested outputs."""


class Basis(enum.Enum):
    """Why outputs are taken for losses."""

    NAMED = "named in loss_indices"
    CALLED = "the module returns it as 'loss'"
    RECOGNISED = "a loss returned it, or what it was scaled, added or selected of"
    COMPUTED = "no output is a loss itself, and this was computed of one"
    ALL = "no output was recognised as a loss, so that all count as losses"


_CALLED_LOSS: Final = "loss"


@dataclass(frozen=True)
class LossChoice:
    """The outputs that training starts from."""

    positions: tuple[int, ...]
    """Among the flat outputs, in order."""
    basis: Basis
    sources: tuple[str, ...] = ()
    """By position, the loss that an output comes from; empty unless losses were recognised."""
    is_doubtful: bool = False
    """Whether outputs are taken for losses that a user may not have meant: all of several, or one
    that is no single number."""

    def sentence(self, names: Sequence[str | None]) -> str:
        """Say which outputs are losses, and how to say otherwise; empty if that was said already.

        Args:
            names: Names of all flat outputs.
        """
        if self.basis is Basis.NAMED:
            return ""
        sources = self.sources or ("",) * len(self.positions)
        losses = ", ".join(
            f"output {position} {names[position]!r}" + (f" ({source})" if source else "")
            for position, source in zip(self.positions, sources, strict=True)
        )
        sentence = f"Training starts from {losses}: {self.basis.value}. "
        if self.is_doubtful:
            sentence += (
                "A model that is trained returns its loss, as F.cross_entropy(logits, label). "
            )
        return sentence + "Name others in loss_indices, or by --loss-index."


def find_losses(
    graph: fx.Graph,
    outputs: Sequence[object],
    trained: Collection[str],
    out_spec: pytree.TreeSpec | None = None,
) -> LossChoice:
    """Return which outputs are losses, as far as a graph shows it.

    1. Those that are returned under the key ``loss``.
    2. Those that a loss function or a loss module returned. They may have been reshaped, cast,
       scaled, masked, reduced or added to something since; what they were made of is returned to be
       looked at, and no loss of its own.
    3. Without any, those that were computed of such a loss in another way, as its root.
    4. Without any, all outputs.

    Integers are never losses. Neither is a value whose gradients reach no parameter, as one that is
    computed of what ``detach`` returned, unless all candidates are such: differentiation then says
    why.

    Args:
        graph: An exported graph, before any decomposition, captured within ``loss_marks``.
        outputs: Its flat outputs: nodes, or constants.
        trained: Names of the placeholders to differentiate by.
        out_spec: Nesting of the outputs, with their keys.
    """
    known = provenances(graph, outputs, trained)
    real = [index for index, output in enumerate(outputs) if _is_real(output)]
    named = [index for index in _called_loss(len(outputs), out_spec) if index in real]
    # Cases 1 to 3, in this order: what a user says outright comes before what the graph shows.
    for related, basis in (
        (named, Basis.CALLED),
        ([i for i in real if known[i].kinship is Kinship.LOSS], Basis.RECOGNISED),
        ([i for i in real if known[i].kinship is Kinship.COMPUTED], Basis.COMPUTED),
    ):
        if related:
            positions = _whole(_trained(related, known), known)
            return LossChoice(positions, basis, tuple(known[i].source for i in positions))
    # Case 4.
    positions = _trained(real, known)
    # A single number that is all a module returns is what trained modules return.
    is_doubtful = len(positions) > 1 or any(not _is_scalar(outputs[i]) for i in positions)
    return LossChoice(positions, Basis.ALL, is_doubtful=is_doubtful)


def refuse_doubtful_sum(choice: LossChoice, outputs: Sequence[object]) -> None:
    """Refuse to train the sum of a single number and of whole predictions, which hardly anybody means.

    SambaFlow's page on ``compile`` says: "If not specified, the compiler assumes that all model output
    tensors are loss tensors and attempts backpropagation from all output tensors." That holds for
    outputs of one kind: several single numbers, or several tensors. Of a loss that somebody wrote by hand
    beside logits it would train something else than what plain PyTorch trains, and nobody would see it:
    whoever wants that says so.

    Args:
        choice: What was found without ``loss_indices``.
        outputs: Flat outputs of the exported graph.

    Raises:
        GradientError: Outputs of both kinds would count as losses; the message has the indices to state.
    """
    if choice.basis is not Basis.ALL:
        return
    numbers = [i for i in choice.positions if _is_number(outputs[i])]
    # Of one kind, SambaFlow's rule holds.
    if not numbers or len(numbers) == len(choice.positions):
        return
    raise GradientError(
        f"no output was recognised as a loss, and of outputs {list(choice.positions)}, which all count as "
        f"losses then, only {numbers} {'are single numbers' if len(numbers) > 1 else 'is a single number'}: "
        f"state loss_indices={numbers}, or --loss-index {numbers[0]}, to train by "
        f"{'those' if len(numbers) > 1 else 'that'} alone, or loss_indices={list(choice.positions)} for the sum of all"
    )


def _called_loss(count: int, out_spec: pytree.TreeSpec | None) -> list[int]:
    """Return the positions of the outputs that have the key ``loss``."""
    if out_spec is None:
        return []
    leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), out_spec))
    return [int(leaf) for path, leaf in leaves if path and _key(path[-1]) == _CALLED_LOSS]


def _key(entry: object) -> object:
    """Return the key or the name of a field by which an output is reached."""
    # Dictionaries have keys and dataclasses names.
    return getattr(entry, "key", None) or getattr(entry, "name", None)


def _trained(positions: Sequence[int], known: Sequence[Provenance]) -> tuple[int, ...]:
    """Return the positions of outputs whose gradients reach a parameter, all if there are none."""
    return tuple(i for i in positions if known[i].trains) or tuple(positions)


def _whole(positions: Sequence[int], known: Sequence[Provenance]) -> tuple[int, ...]:
    """Leave out parts of other losses, which would count twice, and second names of one value."""
    parts = frozenset[int]().union(*(known[i].parts for i in positions))
    whole: dict[int, int] = {}
    for position in positions:
        number = known[position].number
        if number not in parts:
            # Values without a number are each their own; negative keys cannot meet real numbers.
            whole.setdefault(number or -position - 1, position)
    return tuple(whole.values())


def chosen_losses(
    indices: Sequence[LossIndex], outputs: Sequence[object], out_spec: pytree.TreeSpec | None = None
) -> LossChoice:
    """Return which flat outputs ``loss_indices`` names.

    Args:
        indices: Positions among the flat outputs, or paths into nested ones.
        outputs: Flat outputs of an exported graph.
        out_spec: Their nesting, for paths of more than one step.

    Raises:
        UsageError: An index does not exist.
        GradientError: It names an output of integers.
    """
    chosen = []
    for index in indices:
        position = _position(index, len(outputs), out_spec)
        if not _is_real(outputs[position]):
            raise GradientError(
                f"loss_indices names output {position}, which holds no floating-point numbers; "
                "name an output that has a gradient"
            )
        chosen.append(position)
    # Sorted and each once: to name a loss twice does not double it.
    return LossChoice(tuple(sorted(set(chosen))), Basis.NAMED)


def _position(index: LossIndex, count: int, out_spec: pytree.TreeSpec | None) -> int:
    path = [index] if isinstance(index, int) else list(index)
    position: object = path[0] if path else None
    if len(path) > 1 and out_spec is not None:
        position = _follow(path, out_spec, count)
    if not isinstance(position, int) or not -count <= position < count:
        raise UsageError(
            f"loss_indices has {index!r}, but the module has {count} outputs: "
            f"use indices from 0 to {count - 1}"
        )
    # Counted from the end, as Python does.
    return position % count


def _follow(path: Sequence[int], out_spec: pytree.TreeSpec, count: int) -> object:
    """Return the flat position of a leaf of nested outputs, None if there is none."""
    place: object = pytree.tree_unflatten(list(range(count)), out_spec)
    for step in path:
        # A dictionary's values in order, since paths are numbers.
        branches = list(place.values()) if isinstance(place, dict) else place
        if not isinstance(branches, list | tuple) or not -len(branches) <= step < len(branches):
            return None
        place = branches[step]
    return place


def _is_real(output: object) -> bool:
    value = output.meta.get("val") if isinstance(output, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_number(output: object) -> bool:
    """Return whether an output has no axes, or just one of one element."""
    return isinstance(output, fx.Node) and tuple(output.meta["val"].shape) in {(), (1,)}


def _is_scalar(output: object) -> bool:
    return isinstance(output, fx.Node) and output.meta["val"].numel() == 1
