"""``sambaflow.samba.test``: is what the device computes bit for bit what it was before?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn
from torch.optim import Optimizer

from samba_onnx.errors import ModelFileError, UsageError
from samba_onnx.program.kinds import SectionType
from samba_onnx.safety.files import atomic_output
from samba_onnx.sambaflow.device_results import run_results
from samba_onnx.sessions import SESSION

__all__ = ["TestWithGold", "consistency_test"]

_REPEATED: Final = (SectionType.ZEROGRAD, SectionType.FWD, SectionType.BCKWD)
"""Sections that can be run twice with the same results: they leave weights as they are."""


class TestWithGold:
    """Compares a traced module's run with a gold file, which an earlier run was kept in.

    SambaNova's starters make one where ``--gold-file-path`` is given, "to run bit-wise checking". The
    form of the vendor's files is not published; these are safetensors files, which ``save`` writes.
    """

    __test__ = False  # it is no test of pytest's

    def __init__(
        self,
        args: Namespace,
        name: str,
        model: nn.Module,
        inputs: Any = None,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
    ) -> None:
        """Take what is compared.

        Args:
            args: What ``parse_app_args`` returned; ``gold_file_path`` is the gold file, or a folder
                with one that is called ``<name>.safetensors``.
            name: What messages call the module.
            model: The module, after ``trace_graph``.
            inputs: Named tensors; None for those that the module was traced with.
            optimizer: Not looked at: the session knows those that the module was traced with.

        Raises:
            UsageError: There is no ``gold_file_path``.
        """
        del optimizer
        path = getattr(args, "gold_file_path", None)
        if not path:
            raise UsageError("TestWithGold was given no gold_file_path; give --gold-file-path FILE")
        self._path = Path(path, f"{name}.safetensors") if Path(path).is_dir() else Path(path)
        self._name = name
        self._model = model
        self._inputs = inputs

    def save(self) -> None:
        """Run the whole graph once, and keep what it computed as the gold file.

        Raises:
            OutputError: The file cannot be written.
            SambaError: The graph cannot be run; see ``samba.session.run``.
        """
        # safetensors refuses what does not lie in one piece.
        values = {k: v.contiguous() for k, v in run_results(self._model, self._inputs).items()}
        with atomic_output(self._path) as file:
            file.write(save(values))

    def test(self) -> None:
        """Run the whole graph once: outputs, gradients and new weights must be those of the file.

        Raises:
            AssertionError: A bit differs, or a tensor is missing; the message names the tensors.
            ModelFileError: There is no gold file, or it cannot be read.
            SambaError: The graph cannot be run; see ``samba.session.run``.
        """
        gold = self._gold()
        results = run_results(self._model, self._inputs)
        _compare(self._name, gold, results, f"{self._path.name} has")

    def consistency_test(self) -> None:
        """Run forward and backward twice: outputs and gradients must be the same, bit for bit.

        Weights stay as they are, and dropouts draw the same masks both times.

        Raises:
            AssertionError: A bit differs; the message names the tensors.
            SambaError: The graph cannot be run; see ``samba.session.run``.
        """
        _run_twice(self._name, self._model, self._inputs)

    def _gold(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the gold file."""
        try:
            return load(self._path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise ModelFileError(
                f"{self._path} cannot be read as a gold file: {error}; TestWithGold(...).save() "
                "writes one with what the device computes now",
                path=self._path,
            ) from None


def consistency_test(*arguments: Any, **keywords: Any) -> None:
    """Run forward and backward of a traced module twice: results must be the same, bit for bit.

    Published programs call it beside ``TestWithGold``; what its arguments are is not published, so
    that the module is found among those that are given, in whatever order. It runs with the inputs
    that it was traced with.

    Args:
        *arguments: The module, after ``trace_graph``, among others that are not looked at.
        **keywords: The same, by name.

    Raises:
        UsageError: There is no module among the arguments.
        AssertionError: A bit differs; the message names the tensors.
        SambaError: The graph cannot be run; see ``samba.session.run``.
    """
    given = (*arguments, *keywords.values())
    model = next((one for one in given if isinstance(one, nn.Module)), None)
    if model is None:
        raise UsageError("consistency_test was given no module; give the one that was traced")
    _run_twice(type(model).__name__, model, None)


def _run_twice(name: str, model: nn.Module, inputs: Any) -> None:
    """Compare two runs of forward and backward, whose dropouts draw the same masks."""
    present = SESSION.get_section_types()
    types = [kind.value for kind in _REPEATED if kind.value in present]
    # Anew before each run: other masks of dropouts would be a difference, and no fault.
    SESSION.reset_random_generator()
    first = run_results(model, inputs, types)
    SESSION.reset_random_generator()
    second = run_results(model, inputs, types)
    _compare(name, first, second, "the first run computed")


def _compare(
    name: str, gold: Mapping[str, torch.Tensor], results: Mapping[str, torch.Tensor], whose: str
) -> None:
    """Compare all tensors of two runs bit by bit."""
    differing = [
        tensor
        for tensor in sorted(gold.keys() | results.keys())
        if tensor not in gold or tensor not in results or not _same(gold[tensor], results[tensor])
    ]
    if differing:
        raise AssertionError(
            f"{name}: {len(differing)} of {len(results)} tensors are not bit for bit what "
            f"{whose}: {', '.join(differing[:8])}"
        )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits: NaN is equal to itself, and 0 is not to -0."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    views = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (one, other))
    return torch.equal(*views)
