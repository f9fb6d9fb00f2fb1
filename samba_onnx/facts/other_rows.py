"""Rows of the operators that combine many elements, and of those that are no arithmetic at all."""

from __future__ import annotations

from typing import Final

from samba_onnx.facts import flops
from samba_onnx.facts.flops import (
    Formula,
    NoArithmetic,
    PerInputElement,
    PerOutputElement,
    Uncounted,
)
from samba_onnx.facts.operator_facts import Facts, InPlace, Kind, Randomness, rows

_PRODUCT: Final = Formula(
    flops.matrix_product, "a multiply-add per element of the result and of the contracted axis"
)
_CONVOLVES: Final = "a multiply-add per element of the result and of its kernel, and the bias"
_WINDOW: Final = Formula(flops.pool, "one operation per element of the result and of its window")
_NORMALISES: Final = PerOutputElement(
    8, "mean, subtract, square, mean, add and root, divide, scale, shift"
)
_INTERPOLATES: Final = PerOutputElement(7, "two axes of a linear interpolation")
_REPEATS: Final = Uncounted("how often its body runs is known when it runs")
_HOLDS: Final = NoArithmetic("tensors are put together or taken apart, none is computed with")
_READS_TEXT: Final = NoArithmetic("texts and bytes are no numbers")
_TRANSFORMS: Final = Uncounted("it depends on the algorithm and the factors of the length")

_PRODUCTS = (
    *rows(
        {"MatMul": _PRODUCT},
        kind=Kind.COMBINE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "MatMulInteger": _PRODUCT,
            "QLinearMatMul": Formula(flops.quantized_matrix_product, "a product and a rounding"),
            "Gemm": Formula(flops.gemm, "a matrix product and the bias"),
            "Conv": Formula(flops.convolution(weight=1, bias=2), _CONVOLVES),
            "CausalConvWithState": Formula(flops.convolution(weight=1, bias=2), _CONVOLVES),
            # ConvInteger takes no bias.
            "ConvInteger": Formula(flops.convolution(weight=1, bias=flops.NO_BIAS), _CONVOLVES),
            # The quantised form has scales and zero points between its operands.
            "QLinearConv": Formula(flops.convolution(weight=3, bias=8), _CONVOLVES),
            "DeformConv": Formula(flops.convolution(weight=1, bias=3), _CONVOLVES),
            "ConvTranspose": Formula(flops.transposed_convolution, _CONVOLVES),
            "Einsum": Formula(flops.einsum, "products and a sum per combination of indices"),
            "Det": Formula(flops.determinant, "elimination"),
            "Attention": Formula(flops.attention, "two matrix products and a softmax"),
            "LinearAttention": Formula(flops.linear_attention, "update and read a state per token"),
            "RNN": Formula(flops.recurrent(gates=1, per_state=3), "a gate per step"),
            "GRU": Formula(flops.recurrent(gates=3, per_state=13), "three gates per step"),
            "LSTM": Formula(flops.recurrent(gates=4, per_state=24), "four gates per step"),
            "DFT STFT": _TRANSFORMS,
        },
        kind=Kind.COMBINE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_WINDOWS = (
    *rows(
        {
            "MaxPool": _WINDOW,
            "MaxRoiPool": Uncounted("the content of an operand says how large its regions are"),
            # Chosen and compared, never added up: results are elements, or zero and one.
            "Hardmax": PerOutputElement(2, "largest, compare"),
        },
        kind=Kind.COMBINE,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        # A running sum rounds at every place, and kernels may add in blocks.
        {"CumSum": PerOutputElement(1, "one sum")},
        kind=Kind.COMBINE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "CumProd": PerOutputElement(1, "one product"),
            "AveragePool LpPool": _WINDOW,
            "LRN": Formula(flops.local_response, "a square and a sum per neighbour, and four more"),
            "Col2Im": PerInputElement(1, "one sum"),
            "RoiAlign": Uncounted("the content of an operand says how many points it samples"),
            "GridSample Resize Upsample": _INTERPOLATES,
        },
        kind=Kind.COMBINE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_NORMALISATIONS = rows(
    {
        "Softmax": PerOutputElement(5, "largest, subtract, exp, sum, divide"),
        "LogSoftmax": PerOutputElement(6, "largest, subtract, exp, sum, log, subtract"),
        "BatchNormalization": Formula(
            flops.batch_normalization, "four operations, in training mode mean and variance too"
        ),
        "LayerNormalization InstanceNormalization GroupNormalization": _NORMALISES,
        "RMSNormalization": PerOutputElement(5, "square, mean, root, divide, scale"),
        "LpNormalization": PerOutputElement(4, "power, sum, root, divide"),
        "MeanVarianceNormalization": PerOutputElement(
            6, "mean, subtract, square, mean, root, divide"
        ),
        "RotaryEmbedding": PerOutputElement(3, "two products and a sum"),
        "DynamicQuantizeLinear": PerOutputElement(
            6, "largest, smallest, divide, round, shift, saturate"
        ),
    },
    kind=Kind.COMBINE,
    foldable=False,
    exact_in_bfloat16=False,
    same_bits=False,
    in_place=InPlace.NEVER,
    random=Randomness.NEVER,
)

_BODIES = (
    *rows(
        # Their bodies are rounded node by node.
        {"If Loop Scan": _REPEATS},
        kind=Kind.CONTROL,
        foldable=False,
        exact_in_bfloat16=True,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {"SequenceMap": _REPEATS},
        kind=Kind.CONTROL,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
)

_CONTAINERS = rows(
    {
        "ConcatFromSequence SplitToSequence": _HOLDS,
        "Optional OptionalGetElement OptionalHasElement": _HOLDS,
        "SequenceAt SequenceConstruct SequenceEmpty SequenceErase": _HOLDS,
        "SequenceInsert SequenceLength": _HOLDS,
    },
    kind=Kind.CONTAINER,
    foldable=False,
    exact_in_bfloat16=False,
    same_bits=False,
    in_place=InPlace.NEVER,
    random=Randomness.NEVER,
)

_TEXTS = rows(
    {
        "RegexFullMatch StringConcat StringNormalizer StringSplit ImageDecoder": _READS_TEXT,
        "TfIdfVectorizer": Uncounted("how many n-grams it finds is known when it runs"),
    },
    kind=Kind.TEXT,
    foldable=False,
    exact_in_bfloat16=False,
    same_bits=False,
    in_place=InPlace.NEVER,
    random=Randomness.NEVER,
)

OTHER_ROWS: Final[tuple[Facts, ...]] = (
    *_PRODUCTS,
    *_WINDOWS,
    *_NORMALISATIONS,
    *_BODIES,
    *_CONTAINERS,
    *_TEXTS,
)
