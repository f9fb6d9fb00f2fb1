"""The page of the rules of legalisation: ``python -m docs.generators.legalisation`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from samba_onnx.passes.rewrites.legalisation import all_rules

PAGE = Path(__file__).parents[1] / "legalisation.md"

_HEADER = """\
# What falls back is written otherwise

An operator that a target lacks runs on the host's CPU, and what it reads and writes crosses the link in every run. Many of them are
arithmetic that the RDU has under another name: a Pad that reflects takes elements by constant places, an Einsum is a product of matrices.
`samba-port convert` and `analyze`, and `samba.session.compile`, write such nodes with operators that the target's table has.

A node is rewritten if

1. a rule of the table below is for its operator, and it has what the rule needs;
2. the target runs every operator that takes its place, with the types and shapes that it has there;
3. the modelled time of a run gets shorter; what goes on beside sections anyway ([timing.md](timing.md#a-run)) is no part of it.

The third condition is decided for all nodes together, since of two neighbours on the CPU neither may be worth it alone. Which of them
belong on the RDU is a minimum cut between the RDU and the CPU, by what each value costs to copy and what the new nodes cost to
run. The choice is then planned in full, and dropped where that plan is not shorter than the one without it.

```
samba-port analyze model.onnx
samba-port analyze model.onnx --no-legalise resize --no-legalise topk
samba-port analyze model.onnx --no-legalise all
samba-port convert model.onnx --legalise all
```

`--legalise all` applies every rule wherever conditions 1 and 2 hold; `--no-legalise` leaves a rule out. From Python,
`convert` and `analyze` take `legalise="all"` and `no_legalise=("resize",)`.

The report says for each rule which nodes it wrote, which it left, and what a run would cost more without it: transfers, bytes and modelled
time, all other rules applied (`legalisation` in the JSON). Of two nodes that are of use together only, each counts for both, so that
the sum over rules may be more than the difference to `--no-legalise all`. Why a rule does not apply to a node is in the log at debug level.

## Narrower types

No chip has float64, and a target of one's own may lack int64. Rule `narrow` looks at webs: values of such a type that nodes join, which
change their type together. Each value must be proved to fit, from constants, shapes, and what operators return: a place along an axis is
less than its size, a truth value 0 or 1, a remainder less than its divisor, and sums and products of such lie between sums and products of
the ends. What may leave its type may be anything. An input of int64 fits only where a lookup that always runs would refuse any other
number; an illegal one is refused as before. Places that other rules write become int32 where the target lacks int64.

A value of float64 fits if float32 has all its numbers: it comes from float32, from truth values or from small integers, by operators that
select, negate or round to whole numbers, or by sums and products of whole numbers below 2^24. A sum, difference, product, quotient or square
root of such may be anything if a Cast to float32 is all that reads it: rounded to 53 digits and then to 24, it is what float32 computes at
once. The constant of a product or quotient may be one that float32 lacks, as 0.1. Everything else stays on the CPU, and the report says
which value keeps it there: `float32 would round 'x' before it is read`. Inputs and outputs keep their types.

`--legalise float64` (`legalise="float64"`; `all,float64` with all rules) asks for no proof: float64 is computed in float32, rounded by every
node, wherever that makes a run shorter. No bound says how far such numbers are off; `convert` compares its sample with the model, and
`samba-port verify` compares as many inputs as wanted. A constant beyond float32's range keeps its nodes on the CPU.

Quotients and remainders of integers, which the vendor's table lacks, need the same proofs (rule `quotient`): the place of the largest of
30 x 91 numbers becomes a row and a class on the RDU, and an input divided by a constant does not, as nothing says how large it is. A number
that is cast to an integer type that cannot hold it, or NaN, has no result in ONNX, and is no part of a proof.

## Numbers

Numbers are those of the original: equal where the table says so, to the last bit and for integers; otherwise sums are rounded in another
order, within float32's own error. `samba-port verify` compares them.

A rule writes at most 4,096 nodes in the place of one and constants of at most 4 million elements, and all rules together add at most
16,384 nodes to a graph, so that a model with long loops still compiles in seconds.

## Repeated bodies

A recurrent layer of static length, or a Loop of more steps than can be unrolled, is a `Scan` of one body on a target that says
`hardware.repeats_bodies` ([targets.md](targets.md#the-other-keys)): a section then executes the body step by step, and nodes, sections, the size of the
PEF and the time of conversion do not grow with the length. What the input contributes to a recurrent layer is one product in front
of the Scan. A Scan runs on the RDU if

1. its number of steps is known, and what it reads and returns has static shapes;
2. each state has one type and one shape in all steps, as it has one place on the chip;
3. the target runs every node of the body, with its types and shapes there; what it lacks, rules write within the body;
4. the body fits on the chip at once, by compute units and by memory.

Nothing is assumed to overlap between steps: one waits for the states of the one before ([timing.md](timing.md#repeated-bodies)). One or two steps
of a Scan stand one behind the other all the same: no launch is saved there by a repetition. So do those of a Loop within the 4,096
nodes, since what it takes on the CPU is not modelled, and what it computes from the number of a step becomes constant. So are the steps where a
body does not qualify, or the target repeats none, within the same 4,096 nodes; there, and where `--precision` reduces types, which it does
in steps and not in bodies, loops of whose bodies the target has every operator are unrolled before the rules are looked at, whatever that
costs. Recurrent layers compute in the precision that was asked for in any case: their bodies are written in it.

A Loop whose condition only counts, as tf2onnx writes Keras' recurrent layers (no trip count, `i < n` and `j < m` of counters that start from
constants, compared as floats for older operator sets), is one of a known number of steps: it is counted, up to 65,536, before loops are looked
at. A sequence that a loop fills and that is put together behind it is returned as one tensor where the loop stays.

## What it brings

A U-Net with five reflecting Pads, two Einsums, two Resizes, an LSTM of 32 steps and a GridSample, at 3 x 32 x 32, on `sn40l`
(`tests/passes/rewrites/legalisation/unet.py`), copies of a run:

| export | rules | fallbacks | transfers | bytes |
|---|---|---|---|---|
| torch's own, to ONNX | none | 9 | 16 | 700 kB |
| | auto | 0 | 2 | 25 kB |
| torch's older one, to ONNX | none | 9 | 16 | 700 kB |
| | auto | 0 | 2 | 25 kB |
| `module:factory` | none | 7 | 12 | 577 kB |
| | auto | 0 | 2 | 25 kB |

Heads and islands of types that the RDU lacks, as torch exports them: nodes on the CPU.

| model | none | auto |
|---|---|---|
| `topk` of 30 x 7 scores, rows by `i // 7` and classes by `i % 7`, boxes gathered | 8 | 0 |
| `argmax` of a map of heat, as row and column | 13 | 0 |
| two linear layers with `(x.double() * 0.1).float()` between them, and a mean in float64, which stays | 6 | 3 |

Programs that train are written so, too: a training step of an LSTM of 6 steps behind a reflecting pad makes 3 transfers in place of 15, and has no
fallback in place of 4.

The grid of the factory's GridSample is a buffer of the module, whose values are no part of a program: its places and weights are computed
in every run. Ten thousand nodes with 500 Pads among
them are analysed in one second more than without rules.

Runs of 47 architectures of `transformers` before there were rules, and now: [boundaries.md](boundaries.md).

## The rules

`python -m docs.generators.legalisation` writes this page.

| rule | operators | written as | needs | numbers |
|---|---|---|---|---|
"""


def legalisation_page() -> str:
    """Return the page."""
    rows = (
        f"| `{rule.name}` | {', '.join(rule.operators) or rule.values} | {rule.makes} | {rule.needs} | {rule.numbers} |\n"
        for rule in all_rules()
    )
    return _HEADER + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(legalisation_page(), encoding="utf-8")
