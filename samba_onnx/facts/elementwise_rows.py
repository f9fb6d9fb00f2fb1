"""Rows of the operators that compute each element from the elements at its place."""

from __future__ import annotations

from typing import Final

from samba_onnx.facts import flops
from samba_onnx.facts.domains import SAMBA_DOMAIN, STOCHASTIC_ROUND
from samba_onnx.facts.flops import Formula, NoArithmetic, PerOutputElement
from samba_onnx.facts.operator_facts import Facts, InPlace, Kind, Randomness, rows

ONE: Final = PerOutputElement(1, "one operation, whatever the function unit needs for it")

ELEMENTWISE_ROWS: Final[tuple[Facts, ...]] = (
    # --- Rounded once, as IEEE 754 says
    # Sign and order are exact in any type. Results may lie where an operand lies, since the kernel
    # is done with an element before it writes the one in its place.
    *rows(
        {"Abs Neg Max Min": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.OPERAND,
        random=Randomness.NEVER,
    ),
    # Rounded once, hence the same bits everywhere, but to the type's own digits and not bfloat16's.
    *rows(
        {"Add Sub Mul Div Sqrt": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.OPERAND,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "And Not Or Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual": ONE,
            "Cast": NoArithmetic("numbers are converted to another representation"),
        },
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.AFTERWARDS,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Clip Sign Where": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.AFTERWARDS,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Ceil Floor Round": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Xor": ONE,
            "CastLike": NoArithmetic("numbers are converted to another representation"),
        },
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {"BitShift": ONE, "BitCast": NoArithmetic("the same bits are read as another type")},
        kind=Kind.ELEMENTWISE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Relu": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=False,  # numpy and onnxruntime disagree on the sign of a zero
        exact_in_bfloat16=True,
        same_bits=True,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # --- Approximated: kernels use other formulas for whole vectors than for what is left
    *rows(
        {"Exp Log Reciprocal": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.OPERAND,
        random=Randomness.NEVER,
    ),
    *rows(
        {"Pow": ONE},
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.AFTERWARDS,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "Cos Erf Mean Mod Sin Sum Tan Tanh": ONE,
            "Sigmoid": PerOutputElement(3, "exp, add, reciprocal"),
        },
        kind=Kind.ELEMENTWISE,
        foldable=True,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    *rows(
        {
            "Acos Acosh Asin Asinh Atan Atanh Cosh Sinh": ONE,
            "LeakyRelu PRelu ThresholdedRelu": PerOutputElement(2, "compare, scale"),
            "HardSigmoid": PerOutputElement(2, "scale, shift"),
            "Shrink": PerOutputElement(2, "compare, shift"),
            "Softplus": PerOutputElement(3, "exp, add, log"),
            "Softsign": PerOutputElement(3, "abs, add, divide"),
            "Elu": PerOutputElement(3, "exp, subtract, scale"),
            "HardSwish": PerOutputElement(3, "scale, shift, product"),
            "Celu Selu": PerOutputElement(4, "exp, subtract, two products"),
            "Swish": PerOutputElement(4, "sigmoid and a product"),
            "SwiGLU": PerOutputElement(5, "swish of the gate and a product"),
            "Mish": PerOutputElement(5, "softplus, tanh and a product"),
            "Gelu": PerOutputElement(5, "divide, erf, add and two products"),
            "DequantizeLinear": PerOutputElement(2, "shift, scale"),
            "QuantizeLinear": PerOutputElement(4, "divide, round, shift, saturate"),
        },
        kind=Kind.ELEMENTWISE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # Its bits depend on its seed, its values and their places, so that it draws the same ones again.
    *rows(
        {
            STOCHASTIC_ROUND: PerOutputElement(
                1, "random bits are added, which the function unit draws"
            )
        },
        domain=SAMBA_DOMAIN,
        kind=Kind.ELEMENTWISE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.NEVER,
    ),
    # --- Random
    *rows(
        {"Dropout": Formula(flops.dropout, "select and scale where it may train, else nothing")},
        kind=Kind.ELEMENTWISE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,  # the draw for an element depends on its place
        in_place=InPlace.NEVER,
        random=Randomness.TRAINING,
    ),
    *rows(
        {"Bernoulli": PerOutputElement(1, "a compare; the generator's own work is not known")},
        kind=Kind.ELEMENTWISE,
        foldable=False,
        exact_in_bfloat16=False,
        same_bits=False,
        in_place=InPlace.NEVER,
        random=Randomness.ALWAYS,
    ),
)
