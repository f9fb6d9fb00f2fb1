"""The rules about what is traced: ``forward`` and what it calls."""

from __future__ import annotations

from textwrap import dedent

from samba_onnx.tools.lint.findings import LintRule, Severity

_HEAD = "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n"


def _forward(body: str) -> str:
    """Return a module with the lines of its forward."""
    # The body is written with the indentation of the table, and read with that of a method.
    lines = dedent(body).strip("\n").splitlines()
    return _HEAD + "".join(f"        {line}\n" if line else "\n" for line in lines)


FORWARD_RULES: tuple[LintRule, ...] = (
    LintRule(
        id="branch-on-values",
        severity=Severity.ERROR,
        title="A branch that depends on values of a tensor",
        why="Tracing follows the branch that the dummy inputs take; every run executes that one, "
        "whatever its own values are.",
        instead="Compute both and choose with `torch.where`; branch on shapes, flags or the module's mode "
        "only, which are the same in every run.",
        source="Model conversion overview: conditional statements do not become part of the graph on the "
        "RDU, only the branches that were taken are preserved",
        example=_forward("""
            if x.sum() > 0:
                return x * 2
            return x
        """),
        better=_forward("""
            return torch.where(x.sum() > 0, x * 2, x)
        """),
    ),
    LintRule(
        id="host-read-in-forward",
        severity=Severity.ERROR,
        title="A value that forward takes out of a tensor",
        why="While a program is traced a tensor has no value, or that of a dummy input, which would be "
        "the same number in every run.",
        instead="Keep it a tensor: operators take tensors of one element in place of numbers.",
        source="Model conversion overview: tracing makes a static graph with dummy tensors",
        example=_forward("""
            return x * x.max().item()
        """),
        better=_forward("""
            return x * x.max()
        """),
    ),
    LintRule(
        id="size-by-values",
        severity=Severity.ERROR,
        title="A size that depends on values",
        why="Shapes are compiled in, and are those of the dummy inputs; a result of another size has no "
        "place in device memory.",
        instead="Keep all elements and a mask: `torch.where(mask, x, 0)`, or choose on the host before the run.",
        source="Model conversion overview: dummy tensors have the shapes of the inputs; operators of "
        "data-dependent shape are in no table of the RDU",
        example=_forward("""
            return x[x > 0].sum()
        """),
        better=_forward("""
            return torch.where(x > 0, x, 0).sum()
        """),
    ),
    LintRule(
        id="random-in-forward",
        severity=Severity.ERROR,
        title="Random numbers outside of dropout",
        why="Of random operators only dropout is documented on the RDU: numbers that are drawn while a "
        "program is traced would be the same in every run, so it is refused.",
        instead="Use `torch.nn.Dropout`, or draw the numbers on the host and give them to each run as an input.",
        source="PyTorch operator support: dropout is the only random operator; get_dropout_seed_argin_names",
        example=_forward("""
            return x + torch.randn_like(x)
        """),
        better="import torch\n\n\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x: torch.Tensor, noise: torch.Tensor):\n        return x + noise\n",
    ),
    LintRule(
        id="cannot-be-traced",
        severity=Severity.ERROR,
        title="A construct that is refused",
        why="Control flow as an operator, modules of torch.jit, packed sequences, transformations of "
        "functions, reentrant checkpoints and a backward inside of forward have no static graph.",
        instead="Write it with ordinary operators on tensors of fixed shape; checkpoints take "
        "`use_reentrant=False`, and gradients are for the sections of type BCKWD.",
        source="Model conversion overview: control flow within a model is not supported; "
        "docs/training_checklist.md lists what is refused here",
        example="""\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(torch.nn.Linear(4, 4))

    def forward(self, x: torch.Tensor):
        return self.inner(x)
""",
        better="""\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        return self.inner(x)
""",
    ),
    LintRule(
        id="host-operator",
        severity=Severity.WARNING,
        title="An operator that runs on the CPU",
        why="The graph is cut there: each run copies its operands to the host and its results back, "
        "which has a significant performance hit.",
        instead="Use operators that `samba-port ops` lists; otherwise compute it before the first or after "
        "the last operator of the model, on the host.",
        source="Model conversion overview: transferring data between RDU and CPU; reasons are rows of the "
        "target's operator table",
        example="""\
import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Conv2d(3, 3, 1)

    def forward(self, x: torch.Tensor):
        return F.interpolate(self.inner(x), scale_factor=2)
""",
        better="""\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Conv2d(3, 3, 1)
        self.larger = torch.nn.ConvTranspose2d(3, 3, 2, stride=2)

    def forward(self, x: torch.Tensor):
        return self.larger(self.inner(x))
""",
    ),
    LintRule(
        id="data-type",
        severity=Severity.WARNING,
        title="A data type that the RDU does not have",
        why="The operator tables of the RDU have bfloat16, float32, integers of 16 to 64 bits and bool; "
        "operators on float64, float16 and complex numbers run on the CPU.",
        instead="Use `.float()` or `.bfloat16()`.",
        source="PyTorch operator support: no row has FP16, FP64 or complex numbers",
        example=_forward("""
            return x.double().mean()
        """),
        better=_forward("""
            return x.float().mean()
        """),
    ),
    LintRule(
        id="state-in-attribute",
        severity=Severity.WARNING,
        title="A tensor that forward leaves in the module",
        why="forward is executed once, while it is traced; what it leaves in attributes is not what later "
        "runs compute, and is taken back after the trace here.",
        instead="Return it, or write it to a buffer that `register_buffer` made.",
        source="Model conversion overview: tracing converts the module to a static graph; "
        "docs/training_checklist.md",
        example=_forward("""
            self.last = x * 2
            return self.last
        """),
        better=_forward("""
            last = x * 2
            return last
        """),
    ),
    LintRule(
        id="print-in-forward",
        severity=Severity.NOTE,
        title="Output of forward",
        why="forward is executed while a program is traced, and in no run: it prints once, and shows "
        "dummy inputs.",
        instead="Return the tensor and print it after the run.",
        source="Model conversion overview: tracing happens during compilation",
        example=_forward("""
            print("in forward", x.shape)
            return x * 2
        """),
        better=_forward("""
            return x * 2
        """),
    ),
)
"""Rules about traced functions, the worst first."""
