"""Frames of deep work in one piece of memory, by the page faults of calls at all depths."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import samba_onnx
from samba_onnx.compiling.compiler import analyze
from samba_onnx.export.programs.inference import export_inference
from samba_onnx.export.programs.training import export_training
from samba_onnx.safety.frames import frames_together
from tests.frame_memory import faulting_depths
from tests.safety.small_models import relu

ROOT = Path(samba_onnx.__file__).parent
ENTRIES = (*(ROOT / "export" / "programs").glob("*.py"), *(ROOT / "compiling").rglob("*.py"))


class _Probed(nn.Module):
    """Probes all depths below its ``forward``, in the middle of a trace."""

    def __init__(self, probe: Callable[[], None]) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.probe = probe

    def forward(self, x: Tensor) -> Tensor:
        self.probe()
        loss: Tensor = self.linear(x).sum()
        return loss


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="late releases keep the last chunk")
def test_calls_across_a_boundary_of_two_chunks_fault() -> None:
    assert faulting_depths()


def test_no_call_faults_within_a_function_whose_frames_are_together() -> None:
    assert frames_together(faulting_depths)() == []


def test_the_function_is_called_as_without() -> None:
    @frames_together
    def pair(first: int, *, second: int) -> tuple[int, int]:
        """Return both."""
        if second < 0:
            raise ValueError("negative")
        return first, second

    assert pair(1, second=2) == (1, 2)
    assert (pair.__name__, pair.__doc__) == ("pair", "Return both.")
    with pytest.raises(ValueError, match="negative"):
        pair(1, second=-2)


@pytest.mark.parametrize("export", [export_inference, export_training])
def test_no_call_faults_while_torch_traces(export: Callable[..., object]) -> None:
    depths: list[list[int]] = []
    export(_Probed(lambda: depths.append(faulting_depths())), {"x": torch.ones(2, 2)})
    assert depths
    assert not any(depths)


def test_no_call_faults_while_a_model_is_planned() -> None:
    depths: dict[str, list[int]] = {}

    def probe(step: str) -> None:
        if step in ("place", "plan"):
            depths[step] = faulting_depths()

    analyze(relu(), progress=probe)
    assert depths == {"place": [], "plan": []}


def test_whatever_traces_or_plans_a_whole_model_keeps_frames_together() -> None:
    """Inside, the tracers of ``export`` need not; each of these defers collections, too."""
    decorators = {
        f"{path.name}: {function.name}": [ast.unparse(each) for each in function.decorator_list]
        for path in ENTRIES
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
    }
    entries = {name: each for name, each in decorators.items() if "collections_deferred()" in each}
    assert len(entries) >= 6
    assert [name for name, each in entries.items() if "frames_together" not in each] == []
