"""Original and adapted program in a child process each, from one seed, and what differs between them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.facts.tolerances import LOSS_OF_A_STEP, TRAINED_WEIGHTS
from samba_onnx.safety.files import printable
from samba_onnx.safety.leftovers import temporary_folder
from samba_onnx.safety.sandbox import run_child
from samba_onnx.tools.adapt.adapt_report import Check, CheckedTensor, CheckTolerance, StepReport
from samba_onnx.tools.adapt.adapting import Adapted
from samba_onnx.tools.adapt.compiled_step import compiled_step
from samba_onnx.tools.adapt.writing import root_of

_CHILD = "samba_onnx.tools.adapt.check_child"
_ALLOWED: Final = CheckTolerance(
    losses=LOSS_OF_A_STEP,
    weights=TRAINED_WEIGHTS,
    why="both compute in float32 and sum in another order: 6e-8 of a number in each operation, which some tens "
    "of steps make a few hundred times larger; a wrong gradient or rate is off by more than a hundredth",
)
_NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
_TIMES = re.compile(
    r"\b(time|seconds?|secs?|elapsed|took|it/s|ms)\b|\d\s?s\b|0x[0-9a-f]+", re.IGNORECASE
)
_MOST_LINES = 20


@dataclass(frozen=True)
class CheckRequest:
    """What is compared."""

    adapted: Adapted
    """The program, and what became of it."""
    arguments: tuple[str, ...]
    """Its command line."""
    steps: int
    """Steps of the optimizer."""
    seed: int
    """What all generators begin with."""
    seconds: float
    """How long each program may take."""
    folder: str = ""
    """The folder that was given, which is searched for modules, too; empty if none was."""
    back: bool = False
    """Whether a SambaFlow program was written in plain PyTorch."""


def check(request: CheckRequest) -> tuple[Check, StepReport]:
    """Run both programs and compare them.

    Args:
        request: What is compared.

    Returns:
        The comparison, and what the RDU makes of a step.

    Raises:
        UsageError: The original does not run by itself.
        ExecutionError: The adapted program does not run, or one of them takes too long.
    """
    # Files in between: numbers of a whole model are no JSON.
    with temporary_folder("adapt") as name:
        folder = Path(name)
        root = root_of(request.adapted, request.folder or None).resolve()
        start = Path(request.adapted.path).resolve()
        files = {Path(file.path).resolve(): file.text for file in request.adapted.files}
        _mirror(root, folder / "program", files)
        here = _compared_program(request, root, folder) or (start, request.folder)
        there = (
            folder / "program" / start.relative_to(root),
            str(folder / "program") if request.folder else "",
        )
        try:
            original = _run_plain(request, folder, *(there if request.back else here))
        except ExecutionError as error:
            if request.back:
                raise
            raise UsageError(
                f"{error}; --check compares with a program that runs: give its arguments behind --",
                path=request.adapted.path,
            ) from None
        adapted = _run_session(request, folder, *(here if request.back else there))
        compared = _compared(request, original, adapted, folder)
        return compared, compiled_step(folder / "checked" / "checked.pef")


def _compared_program(request: CheckRequest, root: Path, folder: Path) -> tuple[Path, str] | None:
    """Return where the original lies without a smaller last batch of slices; None if it is as it was."""
    texts = {
        Path(file.path).resolve(): file.compared
        for file in request.adapted.files
        if file.compared and file.compared != file.original
    }
    if not texts or request.back:
        return None
    _mirror(root, folder / "original", texts)
    start = folder / "original" / Path(request.adapted.path).resolve().relative_to(root)
    return start, str(folder / "original") if request.folder else ""


def _run_plain(request: CheckRequest, folder: Path, place: Path, search: str) -> Mapping[str, Any]:
    """Run the plain program, wherever it lies."""
    adapted = request.adapted
    # By the place where the compared program lies, which may be a copy.
    start, root = Path(adapted.path).resolve(), root_of(adapted, request.folder or None).resolve()
    copied = place.parents[len(start.relative_to(root).parts) - 1]
    lines = [
        [str(copied / Path(path).resolve().relative_to(root)), *where]
        for path, *where in adapted.whole_batches
    ]
    return run_child(
        f"{_CHILD}:observe_original",
        {
            **_shared(request, folder / "original.safetensors"),
            "program": str(place),
            "whole_batches": lines,
            "folder": search,
            "infers": adapted.infers,
        },
        seconds=request.seconds,
        doing=f"{printable(adapted.path)}: running it {'in plain PyTorch' if request.back else 'as it is'}",
    )


def _run_session(
    request: CheckRequest, folder: Path, place: Path, search: str
) -> Mapping[str, Any]:
    """Compile and run the program for SambaFlow, wherever it lies."""
    what = "as it is" if request.back else "what it was adapted to"
    return run_child(
        f"{_CHILD}:observe_adapted",
        {
            **_shared(request, folder / "adapted.safetensors"),
            "program": str(place),
            "output": str(folder),
            "folder": search,
            "infers": request.adapted.infers,
        },
        seconds=request.seconds,
        doing=f"{printable(request.adapted.path)}: running {what}",
    )


def _mirror(source: Path, target: Path, texts: Mapping[Path, str]) -> None:
    """Make a folder in which some files are others, and all else leads to the original."""
    # Modules and data are found beside the program as before, and nothing is copied that may be large.
    target.mkdir()
    folders = {above for path in texts for above in path.parents}
    for path in source.iterdir():
        place = target / path.name
        if path in texts:
            place.write_text(texts[path], encoding="utf-8", newline="")
        elif path in folders:
            _mirror(path, place, texts)
        elif path.name != "__pycache__":
            place.symlink_to(path)


def _shared(request: CheckRequest, weights: Path) -> dict[str, Any]:
    return {
        "arguments": list(request.arguments),
        "steps": request.steps,
        "seed": request.seed,
        "weights": str(weights),
    }


def _compared(
    request: CheckRequest, original: Mapping[str, Any], adapted: Mapping[str, Any], folder: Path
) -> Check:
    infers = request.adapted.infers
    tensors = _results(folder) if infers else _tensors(folder, original["names"], adapted["names"])
    errors = [
        _relative(expected, found)
        for expected, found in zip(original["losses"], adapted["losses"], strict=False)
    ]
    lines = original["printed"].splitlines()
    first = _first_difference(original, adapted, errors, tensors, infers)
    return Check(
        agrees=not first,
        steps=min(original["steps"], adapted["steps"]),
        losses=tuple(original["losses"]),
        adapted_losses=tuple(adapted["losses"]),
        loss_error=max(errors, default=0.0),
        tensors=tuple(sorted(tensors, key=lambda one: -one.error)),
        first_difference=first,
        dropouts=original["dropouts"],
        without_last_batches=_leaves_out(request.adapted),
        printed_lines=len(lines),
        printed_differences=tuple(_printed(lines, adapted["printed"].splitlines())),
        tolerance=_ALLOWED,
    )


def _leaves_out(adapted: Adapted) -> bool:
    return bool(adapted.whole_batches) or any(
        file.compared != file.original for file in adapted.files
    )


def _first_difference(
    original: Mapping[str, Any],
    adapted: Mapping[str, Any],
    errors: Sequence[float],
    tensors: Sequence[CheckedTensor],
    infers: bool,
) -> str:
    # Losses in their order first: the first one that is off says more than all weights after it.
    for step, error in enumerate(errors):
        if not error <= _ALLOWED.losses:
            expected, found = original["losses"][step], adapted["losses"][step]
            return f"the loss of step {step + 1} is {found:.7g}, expected {expected:.7g}"
    if len(original["losses"]) != len(adapted["losses"]) or original["steps"] != adapted["steps"]:
        what = "runs" if infers else "steps"
        return f"it made {adapted['steps']} {what}, expected {original['steps']}"
    if infers and not original["steps"]:
        return "the original called no model; give arguments with which it does"
    if not infers and not original["losses"]:
        return "the original made no step; give arguments with which it trains"
    for tensor in tensors:
        if not tensor.error <= _ALLOWED.weights:
            when = "" if infers else " after the last step"
            return f"{tensor.name} is off by {tensor.error:.2g} of its largest number{when}"
    return ""


def _relative(expected: float, found: float) -> float:
    # NaN in both is the same; in one it is the largest difference there is.
    if math.isnan(expected) and math.isnan(found):
        return 0.0
    error = abs(expected - found) / max(1.0, abs(expected))
    return math.inf if math.isnan(error) else error


def _tensors(folder: Path, names: Sequence[str], others: Sequence[str]) -> list[CheckedTensor]:
    expected = load_file(folder / "original.safetensors")
    found = load_file(folder / "adapted.safetensors")
    # By name where both have the same ones: groups of an optimizer may stand in another order.
    if sorted(names) == sorted(others) and len({*names}) == len(names):
        found = {f"{place}": found[f"{others.index(one)}"] for place, one in enumerate(names)}
    # Rounding decides the direction of steps that Adam makes of gradients that are zero but for it, as
    # of a bias before a normalisation, whose running mean moves with it.
    drift = max((_drift(expected, found, place) for place in range(len(names))), default=0.0)
    tensors = []
    for place, name in enumerate(names):
        noise = expected.get(f"noise {place}")
        if noise is None and drift and name.endswith("running_mean"):
            noise = np.ones_like(expected[f"{place}"])
        error = _tensor_error(expected[f"{place}"], found.get(f"{place}"), noise)
        tensors.append(CheckedTensor(name, error, 0 if noise is None else int(noise.sum())))
    return tensors


def _results(folder: Path) -> list[CheckedTensor]:
    """Return what each run returned, held against what the original's model did."""
    # The adapted program returns what it looks at: some of the model's results, in their order.
    expected = load_file(folder / "original.safetensors")
    found = load_file(folder / "adapted.safetensors")
    tensors = []
    for name, one in found.items():
        run, _, place = name.partition(" ")
        others = [other for key, other in expected.items() if key.partition(" ")[0] == run]
        error = min(
            (_tensor_error(_rows(other, one), one, None) for other in others), default=math.inf
        )
        tensors.append(CheckedTensor(f"output {int(place) + 1} of run {int(run) + 1}", error, 0))
    return tensors


def _rows(expected: npt.NDArray[Any], found: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a smaller last batch with as many rows as were compiled, by the last one of it."""
    missing = len(found) - len(expected) if found.ndim and expected.ndim == found.ndim else 0
    return (
        expected if missing <= 0 else np.concatenate([expected, expected[-1:].repeat(missing, 0)])
    )


def _drift(
    expected: Mapping[str, npt.NDArray[Any]], found: Mapping[str, npt.NDArray[Any]], place: int
) -> float:
    # Only where Adam made something of nothing: with SGD a gradient of zero moves nothing.
    noise = expected.get(f"noise {place}")
    other = found.get(f"{place}")
    if noise is None or other is None or not noise.any():
        return 0.0
    return float(np.abs(expected[f"{place}"] - other)[noise > 0].max())


def _tensor_error(
    expected: npt.NDArray[Any],
    found: npt.NDArray[Any] | None,
    noise: npt.NDArray[Any] | None,
) -> float:
    if found is None or found.shape != expected.shape:
        return math.inf
    # Infinities that are the same, as of a mask, have no difference that is a number.
    difference = np.abs(np.where(expected == found, 0.0, expected - found))
    if noise is not None:
        difference = np.where(noise > 0, 0.0, difference)
    if not difference.size:
        return 0.0
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1e-6)
    return float(difference.max() / largest)


def _printed(expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return lines that are not the same text with nearly the same numbers."""
    differing = []
    for one, other in zip(expected, found, strict=False):
        # How long something took is another number in every run.
        if one != other and not _TIMES.search(one) and not _is_near(one, other):
            differing.append(f"{one!r} became {other!r}")
    return differing[:_MOST_LINES]


def _is_near(one: str, other: str) -> bool:
    # The words must be the same, the numbers only nearly.
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    # Printed numbers are rounded: the last digit may be another one.
    return all(
        abs(float(a) - float(b)) <= _ALLOWED.weights * max(1.0, abs(float(a))) + _last_digit(a)
        for a, b in pairs
    )


def _last_digit(number: str) -> float:
    digits = number.partition(".")[2]
    return 10.0 ** -len(digits) if digits.isdigit() else 0.0
