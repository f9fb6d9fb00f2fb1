"""The page on migration: ``python -m docs.generators.migration`` writes it anew."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from samba_onnx.compiling.sambaflow_arguments import Argument
from samba_onnx.facts.roundings import SETTINGS
from samba_onnx.facts.sambaflow_names import MISSING, MODULES, ROOT, missing
from samba_onnx.sambaflow.module_rows import HOME
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.arguments import ARGUMENTS

PAGE: Final = Path(__file__).parents[1] / "migration.md"

_HEADER: Final = """\
# Migration

From SambaFlow nothing changes; from plain PyTorch six lines do. `samba-port lint script.py` says of either what will hurt
([lint.md](lint.md)), and `samba-port adapt script.py` writes the second one as a SambaFlow program ([adapt.md](adapt.md)).

## From plain PyTorch

The loop stays a loop; what the six marked lines say is where it runs.

```python
import torch
from torch import nn

import samba_onnx as samba  # 1


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y):
        logits = self.layer(x)
        return self.loss(logits, y), logits


torch.manual_seed(0)
batches = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(20)]
model = Classifier()
samba.from_torch_model_(model)  # 2: parameters get names
optimizer = samba.optim.SGD(model.parameters(), lr=0.1)  # 3: torch.optim.SGD works, too
dummies = samba.randn(8, 4, name="x"), samba.randint(3, (8,), name="y")
pef = samba.session.compile(model, dummies, optimizer)  # 4: once
outputs = samba.utils.trace_graph(model, dummies, optimizer, pef=pef)  # 5

losses = []
for x, y in batches * 3:
    inputs = samba.from_named_dict({"x": x, "y": y})
    # 6, for model(x, y), zero_grad(), backward() and step():
    loss, logits = samba.session.run(list(inputs.values()), outputs)
    losses.append(float(samba.to_torch(loss)))

samba.session.to_cpu(model)  # before weights are saved or looked at on the host
assert losses[-1] < losses[0]
```

What to know before:

- A process that only runs needs no line 4: it loads the PEF by line 5.
- The loss is computed in `forward`: what is outside of it does not run on the RDU ([training.md](training.md)).
- Shapes are compiled in: the last batch has the size of the others (`drop_last=True`), or is padded.
- `optimizer.step()` and `loss.backward()` are part of `run`; a rate that a scheduler sets counts from the next run on.
- Values that Python looks at in `forward`, as in `if x.sum() > 0`, are decided once, when the model is traced.

## From SambaFlow

A program with `import sambaflow.samba as samba` runs as it is:

```text
samba-port exec logreg.py compile --pef-name=logreg
samba-port exec logreg.py run --pef=out/logreg/logreg.pef
python -m samba_onnx.sambaflow logreg.py run --pef=out/logreg/logreg.pef
```

or as plain `python logreg.py run ...`, `srun` and `mpirun` lines included, after `samba-port install-sambaflow`; in a test suite, after
`samba_onnx.sambaflow.install()`. New programs may `import samba_onnx as samba` ([python.md](python.md)).
`python -m docs.generators.migration` makes the tables below of the layer itself.
"""


def migration_page() -> str:
    """Return the page."""
    parts = (_HEADER, _here(), _idle_arguments(), _idle_names(), _missing())
    return "\n".join(parts)


def _here() -> str:
    rows = [
        f"| `{ROOT}{name}` | {', '.join(f'`{one}`' for one in names)} |"
        for name, names in ((name.removeprefix(ROOT), _usable(name)) for name in sorted(MODULES))
        if names
    ]
    text = """\
### What is here

Names that a module of the first column has, as programs import them; `sambaflow.samba` has those of `samba_onnx` besides, operators
included.

| module | names |
|---|---|
"""
    return text + "\n".join(rows) + "\n"


def _reason(argument: Argument) -> str:
    """Why an argument changes nothing."""
    if argument.beside:
        return f"a hint to the compiler without `--{argument.beside.replace('_', '-')}`; with it, programs are cut"
    effective = [f"`{value}`" for name, value in SETTINGS if name == argument.name]
    if effective:
        return f"a hint to the compiler, but for {effective[0]}, which takes effect ([precision.md](precision.md#stochastic-rounding))"
    return argument.idle or "a hint to the compiler"


def _idle_arguments() -> str:
    rows = [
        f"| {', '.join(f'`{option}`' for option in argument.options)} | {argument.help} | "
        f"{_commands(argument)} | {_reason(argument)} |"
        for argument in ARGUMENTS
        if argument.hint or argument.idle
    ]
    text = """\
### Arguments that are accepted without effect

They change nothing that is computed. What is a hint to the compiler is kept in the PEF, and `samba-port inspect` lists it.

| argument | what it asks for | for | why it has no effect |
|---|---|---|---|
"""
    return text + "\n".join(rows) + "\n"


def _idle_names() -> str:
    rows = [f"| `{name}` | {what} |" for name, what in _idle()]
    text = """\
### Functions, and arguments of functions, that are accepted without effect

| name | what has no effect |
|---|---|
"""
    return text + "\n".join(rows) + "\n"


def _missing() -> str:
    rows = [
        f"| `{name}` | {reason.partition('; ')[0]} | {reason.partition('; ')[2]} |"
        for name, reason in sorted(MISSING.items())
    ]
    text = """\
### What is missing

They can be imported where published programs do; using them raises `UnsupportedSymbolError`, which says what the table says.

| name | why | what to do |
|---|---|---|
"""
    return text + "\n".join(rows) + "\n"


def _commands(argument: Argument) -> str:
    return ", ".join(sorted(f"`{command}`" for command in argument.commands))


def _module(name: str) -> Any:
    return importlib.import_module(HOME + name.removeprefix(ROOT))


def _usable(module: str) -> list[str]:
    """Return the names of a module of SambaFlow's that can be used, without its submodules."""
    found = _module(module)
    return [
        name
        for name in sorted(getattr(found, "__all__", ()))
        if f"{module}.{name}" not in MODULES
        and missing(f"{module}.{name}") is None
        # What stands for a name that another module has a row for.
        and not hasattr(getattr(found, name), "refusal")
    ]


def _idle() -> Iterator[tuple[str, str]]:
    """Yield what the documentation of the layer says to have no effect, with what of it has none."""
    members = dict(_members("samba.session", SambaSession))
    for module in sorted(MODULES):
        for name in _usable(module):
            value = getattr(_module(module), name)
            if inspect.isfunction(value) or inspect.isclass(value):
                members.setdefault(f"{module}.{name}", value)
    # A function that several modules have is told of where it is first.
    told: set[int] = set()
    for name, value in members.items():
        if id(value) in told:
            continue
        told.add(id(value))
        what = _without_effect(value)
        if what:
            yield name, what


def _members(owner: str, kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in inspect.getmembers_static(kind):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and inspect.isfunction(function):
            yield f"{owner}.{name}", function


_IDLE: Final = re.compile(r"without effect|^a hint\b|; a hint\b|^hints\b", re.IGNORECASE)
_ENTRY: Final = re.compile(r"^    (\*{0,2}\w+): (.*(?:\n        .*)*)", re.MULTILINE)
"""One argument of a docstring in Google's style."""


def _without_effect(value: Any) -> str:
    """Return what of a function has no effect, by its documentation; empty if all of it has one."""
    text = inspect.getdoc(value) or ""
    if _IDLE.search(text.partition("\n")[0]):
        return "the whole call"
    _, _, arguments = text.partition("\nArgs:\n")
    arguments = arguments.partition("\n\n")[0]
    idle = [name for name, meaning in _ENTRY.findall(arguments) if _IDLE.search(meaning)]
    return ", ".join(f"`{name}`" for name in idle)


if __name__ == "__main__":
    PAGE.write_text(migration_page(), encoding="utf-8")
