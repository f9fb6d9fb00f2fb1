"""The page of operators of other domains: ``python -m docs.generators.foreign_operators`` writes it anew."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

from samba_onnx.facts.domains import BLOCKED_DOMAIN, qualified
from samba_onnx.passes.rewrites.foreign.blocked_layouts import BLOCKED_RULES
from samba_onnx.passes.rewrites.foreign.rules import operators_with_rules, rule_named
from samba_onnx.passes.rewrites.foreign.whole import operators_that_stay

PAGE = Path(__file__).parents[1] / "foreign_operators.md"

_HEADER = """\
# Operators of onnxruntime, of quantised models and of scikit-learn

Tools write operators that the RDU's table does not have, but that are made of some which it has: onnxruntime's optimizers and
quantizers (`com.microsoft`), skl2onnx (`ai.onnx.ml`), and ONNX's own quantised products. `samba-port convert` and `analyze` write them
with what they are made of, node by node. A node stays whole, and runs on the host's CPU, where its form is beyond the rule or the target
lacks a part; a note and the reason of its fallback say why.

```
samba-port analyze model.onnx
samba-port analyze model.onnx --json | jq '.fallbacks'
```

**Quantised models.** `QLinearConv` and its like become DequantizeLinear, the operator on numbers, and QuantizeLinear, which are then
computed in float32: divide, round, clip, add; subtract, multiply. In between are floats that hold the whole numbers which the integers
are. Results differ from onnxruntime's by one step of the output's scale at most, where a number lies between two integers and its
last bit decides. `MatMulInteger` and `ConvInteger` are exact, to the last bit: float32 holds whole numbers up to 2^24, so a sum of products is
exact while the sum of their sizes stays below. Of a weight that is known the real sums decide, else the largest that eight bits
allow, 258 products; longer sums are cut into pieces, which are summed up as int32.

**Models that onnxruntime saved.** With `SessionOptions.optimized_model_filepath`, levels basic and extended write operators of the first
table. Level all lays channels out in blocks for the processor (`com.microsoft.nchwc`): weights go back to ONNX's order, all of them or none.
How many channels a block has is not in the file, so it is taken to be that of the machine at hand, as onnxruntime does; a note says so. Save
with `ORT_ENABLE_EXTENDED` what is to run on other machines.

**Operators without a kernel.** onnxruntime has no CPU kernel for some, as `GroupNorm` or `NhwcConv`. They run here because they are
expanded; one that stays whole cannot run on the emulator, and `convert` says so.

`python -m docs.generators.foreign_operators` writes this page.

## Expanded

| operator | what it is |
|---|---|
"""
_WHOLE = """
## On the CPU, whole

| operator | why |
|---|---|
"""


def foreign_page() -> str:
    """Return the page."""
    rules = {name: _summary(rule_named(name)) for name in operators_with_rules()}
    rules |= {
        qualified(BLOCKED_DOMAIN, name): _summary(rule) for name, rule in BLOCKED_RULES.items()
    }
    expanded = _rows(rules)
    return _HEADER + expanded + _WHOLE + _rows(operators_that_stay())


def _rows(texts: Mapping[str, str]) -> str:
    return "".join(
        f"| {name} | {texts[name].replace('|', chr(92) + '|')} |\n" for name in sorted(texts)
    )


def _summary(rule: Callable[..., object]) -> str:
    """Return the first sentence of a rule's docstring, without its full stop."""
    return inspect.cleandoc(rule.__doc__ or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(foreign_page(), encoding="utf-8")
