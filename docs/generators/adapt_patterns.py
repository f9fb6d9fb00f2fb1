"""The page of ``samba-port adapt``: ``python -m docs.generators.adapt_patterns`` writes it anew."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

from samba_onnx.tools.adapt.adapting import Adapted, adapt_source
from samba_onnx.tools.adapt.pattern_table import ADAPTED, OPEN
from samba_onnx.tools.adapt.program_files import read_source

PAGE = Path(__file__).parents[1] / "adapt.md"
CORPUS = Path(__file__).parents[2] / "tests" / "tools" / "adapt" / "corpus"
SHOWN = "script_linear.py"

_HEADER = """\
# From a PyTorch program to a SambaFlow program

`samba-port adapt` makes the changes that the vendor's guide to model conversion asks for, in the program's own style: comments, quotes
and all that need not change stay as they are. It reads the program with its scopes, by [LibCST](https://libcst.readthedocs.io); install it
by `pip install 'samba-onnx[adapt]'`.

```
samba-port adapt train.py                        # the difference, and what is left to do, with lines
samba-port adapt train.py -o train_rdu.py        # the program
samba-port adapt train.py --check 20             # runs both for 20 steps, and compares losses and weights
samba-port adapt train.py --patch rdu.patch      # all files that change, for `git apply`
samba-port adapt project --entry train.py -o project_rdu
samba-port adapt train_rdu.py --from sambaflow -o train.py
samba-port exec train_rdu.py compile --pef-name train
samba-port exec train_rdu.py run --pef out/train/train.pef
```

Nothing is executed without `--check`. The exit status is 1 if a person has to look at something first: an output that would not run,
or that would compute something else, is not written unless `--partial` asks for it. What the program knew as options it still knows,
behind `compile` or `run`.

## Programs of several files

Files of its own that a program imports, beside it or in packages, by absolute or relative imports, are read with it: a loop in `engine.py`, a model
in `models/net.py`, an optimizer in `utils/optim.py`. Only those that must change are changed; the new module goes into the file with the step, whose
names it reads, and the branch that compiles into the file where training begins. `-o FOLDER` writes all these files; data and configuration are not
copied. `--patch FILE` writes the differences, with names from the folder where the command runs. A folder with `--entry` is searched for modules, too.
What a file does only when it is started itself, and functions that nobody names, are left alone.

## One program, before and after

```py
{before}
```

```py
{after}
```

## Is it the same?

`--check N` runs both programs in a process each, from one seed, until the optimizer has made N steps; arguments of the program stand behind `--`.
Compared are the loss of every step, and all weights and buffers after the last one; of a program that only infers, what each of N runs returns. The
first difference is named, and the exit status is 1.
It executes the program as it is, with all that it reads and writes.

- A loss may be off by 1e-4 of itself, a weight by 1e-3 of its tensor's largest: both compute in float32 and sum in another order.
- Dropout is off in both: the RDU draws other masks by design.
- Numbers whose gradients are nothing but rounding, as those of a bias before a normalisation, are left out: Adam makes whole steps of them in any direction.
  So are the running means of normalisations behind them.
- Where the adapted program leaves out a smaller last batch, so does the original.
- Loaders that `accelerate` prepares shuffle by a generator of their own; for the comparison they are torch's.
- What both print is compared by words and numbers; times are not. Other numbers are listed, and do not fail the check.

The report then also says what the RDU makes of the step, as `samba-port inspect` does of its PEF, and what `samba-port lint` finds in the program.

## What is adapted

Tried on {count} programs in the style of tutorials, scripts and repositories: {complete} are adapted without a hand's touch, {refused} are refused with lines,
{already} was written for SambaFlow already. `python -m docs.generators.adapt_patterns` makes this page of them.

| pattern | what it is | programs |
|---|---|---|
{adapted}

## What is left to a person

A note does not keep the program from being written; all others do.

| pattern | what it is | programs |
|---|---|---|
{open}

## And back

`--from sambaflow` writes a program of the documented style as one of plain PyTorch, for those who want to compare on a GPU: a run becomes a call of
`run_step`, which computes forward pass, gradients and step; the branch that compiles is gone; arguments stay. With `--check`, there and back computes
the same. What SambaFlow alone has is refused with its line.

## Limits

- One training step: model, optimizer and loop may be in functions, classes, methods and files of the program. A program of several steps, as a GAN,
  would need several graphs that train in one PEF, and `compile_multigraph` takes graphs that only infer: each is a program of its own.
- Shapes are those of the first batch; smaller last batches of loaders, and of slices made by hand, are left out, and the report says so.
- Evaluation of what trains runs on the host, on copies of the weights. Of a program that only infers, the one call of its model runs on the RDU; a
  smaller last batch is filled, and cut again.
- A state of several tensors that one step hands to the next, as an LSTM's, has to be a tuple from the first step on.
- `accelerate` is adapted for one process. Of Lightning, the loop is written out where `training_step`, `configure_optimizers`, loaders and `max_epochs` say
  all of it: hooks, callbacks, manual optimization, metrics that a scheduler watches, `trainer.test` and loops over steps are refused. ignite and
  timm's have the loop themselves, and are refused.
- Of the Trainer of transformers, the loop is written out with its groups of parameters, schedule (linear, cosine, constant), clipping, seed and order of
  data, with `compute_loss` where the program has one, as the Trainer of transformers 5 computes it. Sums over several batches, evaluation while it trains,
  callbacks, narrower types, tokenizers that pad, and what is asked of the Trainer behind `train()` are refused with their lines.
- Of command lines, argparse is adapted, and one command of click, fire or typer, whose options become those of SambaFlow's parser; absl, hydra and others
  are refused.
- Set-up code is not executed to decide what the text does not say; without `--check`, nothing is.
- A program that starts in a package, by `python -m`, is not compared by `--check`.
"""


@cache
def adapted_programs() -> dict[str, Adapted]:
    """Return what becomes of every program of the corpus, by the name of the file that is executed."""
    paths = sorted([*CORPUS.glob("*.py"), *CORPUS.glob("*/main.py"), *CORPUS.glob("*/train.py")])
    return {
        path.relative_to(CORPUS).as_posix(): adapt_source(read_source(str(path))) for path in paths
    }


def adapt_page() -> str:
    """Return the page."""
    programs = adapted_programs()
    shown = programs[SHOWN]
    complete = sum(not one.blocking and not one.is_already for one in programs.values())
    return _HEADER.format(
        before=shown.original.strip(),
        after=shown.text.strip(),
        count=len(programs),
        complete=complete,
        refused=sum(bool(one.blocking) for one in programs.values()),
        already=sum(one.is_already for one in programs.values()),
        adapted=_rows(ADAPTED, _found(programs, "changes")),
        open=_rows(OPEN, _found(programs, "points")),
    )


def _found(programs: dict[str, Adapted], what: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, adapted in programs.items():
        for pattern in sorted({one.pattern for one in getattr(adapted, what)}):
            found[pattern].append(name.removesuffix(".py").partition("/")[0])
    return found


def _rows(table: dict[str, str], found: dict[str, list[str]]) -> str:
    return "\n".join(
        f"| `{pattern}` | {text} | {_programs(found.get(pattern, []))} |"
        for pattern, text in table.items()
    )


def _programs(names: list[str]) -> str:
    few = ", ".join(names[:4])
    return few if len(names) <= 4 else f"{len(names)}: {few}, ..."


if __name__ == "__main__":
    PAGE.write_text(adapt_page(), encoding="utf-8")
