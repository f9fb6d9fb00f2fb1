"""Rows of the operators that move, create, search, reduce or combine elements."""

from __future__ import annotations

from typing import Final

from samba_onnx.facts import flops
from samba_onnx.facts.domains import ALL_GATHER, ALL_REDUCE, DROPOUT_MASK, SAMBA_DOMAIN
from samba_onnx.facts.flops import (
    Formula,
    NoArithmetic,
    PerInputElement,
    PerOutputElement,
    Uncounted,
)
from samba_onnx.facts.operator_facts import Facts, InPlace, Kind, Randomness, rows

MOVES: Final = NoArithmetic("elements are moved or selected, not computed with")
_RENAMES: Final = NoArithmetic("the same elements get another shape")
_DESCRIBES: Final = NoArithmetic("shapes and attributes say what the result holds")
_DRAWS: Final = Uncounted("what a generator of random numbers needs is not known")
_REDUCES: Final = PerInputElement(1, "one operation")
_REDUCES_TWICE: Final = PerInputElement(2, "one operation before the sum, and the sum")

_VIEWS = (
    *rows(
        {"Flatten Reshape Squeeze Unsqueeze": _RENAMES},
        kind=Kind.VIEW,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Identity": _RENAMES},
        kind=Kind.VIEW,
        foldable=False,  # it is removed, which copies nothing
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_MOVES = (
    *rows(
        {"Compress Concat Expand Gather GatherND Slice Split Tile Transpose Trilu": MOVES},
        kind=Kind.MOVE,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "CenterCropPad DepthToSpace GatherElements MaxUnpool Pad": MOVES,
            "ReverseSequence SpaceToDepth": MOVES,
        },
        kind=Kind.MOVE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_OVERWRITES = (
    # The kernel copies the data and writes updates into the copy, which is no copy in place.
    *rows(
        {
            "ScatterElements ScatterND": Formula(
                flops.scatter, "one operation per update with a reduction, else none"
            )
        },
        kind=Kind.OVERWRITE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.OVERWRITTEN,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Scatter TensorScatter": MOVES},
        kind=Kind.OVERWRITE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_CREATES = (
    *rows(
        {"ConstantOfShape": _DESCRIBES},
        kind=Kind.CREATE,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # Sizes and ranges may have more digits than bfloat16 holds.
    *rows(
        {"Shape Size": _DESCRIBES, "Range": PerOutputElement(2, "product, sum")},
        kind=Kind.CREATE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "Constant EyeLike": _DESCRIBES,
            "OneHot": NoArithmetic("indices say where one of two values is written"),
        },
        kind=Kind.CREATE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # Computed from angles, so that results are rounded and kernels approximate.
    *rows(
        {
            "HammingWindow HannWindow": PerOutputElement(4, "scale, cosine, product, subtract"),
            "BlackmanWindow": PerOutputElement(8, "two angles, cosines, products and sums"),
            "MelWeightMatrix": Uncounted("most of its elements are zero, how many it computes"),
            "AffineGrid": PerOutputElement(6, "a row of a matrix of two or three columns"),
        },
        kind=Kind.CREATE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {"RandomNormal RandomNormalLike RandomUniform RandomUniformLike": _DRAWS},
        kind=Kind.CREATE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.ALWAYS,
    ),
    # Each RDU adds its share of a sum; which order they add in may differ from run to run of a device.
    *rows(
        {ALL_REDUCE: PerOutputElement(1, "each RDU adds its part of the summands of all")},
        domain=SAMBA_DOMAIN,
        kind=Kind.COMBINE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {ALL_GATHER: MOVES},
        domain=SAMBA_DOMAIN,
        kind=Kind.MOVE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # The mask depends on its seed and nothing else, so that forward and backward make the same one.
    *rows(
        {
            DROPOUT_MASK: PerOutputElement(
                8, "add, two shifts, two exclusive ors and two products of a hash, a compare"
            )
        },
        domain=SAMBA_DOMAIN,
        kind=Kind.CREATE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_SEARCHES = (
    # Places are integers, which bfloat16 could not hold.
    *rows(
        {"NonZero": PerInputElement(1, "a compare")},
        kind=Kind.SEARCH,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # Values are elements of the operand, and places beside them are integers of their own.
    *rows(
        {
            "TopK": Formula(
                flops.top_k, "compares each element with the best so far, by bisection"
            ),
            "Unique": Uncounted("it sorts, which takes as many steps as the content asks for"),
        },
        kind=Kind.SEARCH,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "ArgMax ArgMin": PerInputElement(1, "a compare"),
            "NonMaxSuppression": Uncounted("boxes are compared until enough are found"),
        },
        kind=Kind.SEARCH,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Multinomial": _DRAWS},
        kind=Kind.SEARCH,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.ALWAYS,
    ),
)

_REDUCTIONS = (
    # The largest is one of the elements, whatever order they are compared in.
    *rows(
        {"ReduceMax ReduceMin": _REDUCES},
        kind=Kind.REDUCE,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.AFTERWARDS,
        random=Randomness.NEVER,
    ),
    *rows(
        {"ReduceSum": _REDUCES},
        kind=Kind.REDUCE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.AFTERWARDS,
        random=Randomness.NEVER,
    ),
    *rows(
        {"ReduceMean": _REDUCES, "ReduceL1 ReduceL2 ReduceSumSquare": _REDUCES_TWICE},
        kind=Kind.REDUCE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.AFTERWARDS,
        random=Randomness.NEVER,
    ),
    *rows(
        {"ReduceProd": _REDUCES},
        kind=Kind.REDUCE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "GlobalAveragePool": _REDUCES,
            "ReduceLogSum GlobalLpPool": _REDUCES_TWICE,
            "ReduceLogSumExp": PerInputElement(4, "largest, subtract, exp, sum"),
            "NegativeLogLikelihoodLoss": PerInputElement(1, "a product or sum"),
            "SoftmaxCrossEntropyLoss": PerInputElement(7, "log-softmax, and a product or sum"),
        },
        kind=Kind.REDUCE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # As ReduceMax, over all places of a plane.
    *rows(
        {"GlobalMaxPool": _REDUCES},
        kind=Kind.REDUCE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

TENSOR_ROWS: Final[tuple[Facts, ...]] = (
    *_VIEWS,
    *_MOVES,
    *_OVERWRITES,
    *_CREATES,
    *_SEARCHES,
    *_REDUCTIONS,
)
