"""The names of the functional interface, by the part of it that they belong to.

Names only: importing this module costs nothing, so that the package can list what it offers
without loading torch. ``samba_onnx.functional.table`` gives every name its meaning.
"""

from __future__ import annotations

from typing import Final

TORCH_OPERATORS: Final[dict[str, tuple[str, ...]]] = {
    part: tuple(names.split())
    for part, names in {
        "arithmetic": """
            abs acosh add addcdiv addcmul asinh atanh ceil clamp clamp_max clamp_min cos cosh
            deg2rad div exp exp2 expm1 floor floor_divide fmod frac lerp log log10 log1p log2
            maximum minimum mul neg pow rad2deg reciprocal remainder round rsqrt sign sin sinh
            sqrt square sub tan trunc""",
        "tensorarithmetic": """
            addbmm addmm addmv addr baddbmm bilinear bmm cumprod cumsum dot einsum inner linear
            matmul mm mv outer scaled_dot_product_attention tensordot vdot""",
        "reduce": """
            all amax amin any argmax argmin count_nonzero logsumexp max mean min norm prod std sum
            topk var""",
        "logical": """
            bitwise_and bitwise_not bitwise_or bitwise_xor eq ge gt isclose isfinite isinf
            isnan le logical_and logical_not logical_or logical_xor lt ne""",
        "tensorops": """
            broadcast_to cat chunk contiguous diagonal expand flatten flip gather hstack index_add
            index_copy index_fill index_select masked_fill moveaxis narrow one_hot pad permute
            pixel_shuffle repeat repeat_interleave reshape roll scatter scatter_add scatter_reduce
            select split squeeze stack swapaxes t take_along_dim tile transpose tril triu unbind
            unflatten unfold unsqueeze view vstack where""",
        "activation": """
            celu elu erf gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax
            logsigmoid mish prelu relu relu6 selu sigmoid silu softmax softmin softplus softshrink
            softsign tanh tanhshrink threshold""",
        "layers": """
            adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d
            alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm conv1d conv2d conv3d
            conv_transpose1d conv_transpose2d conv_transpose3d dropout dropout1d dropout2d
            dropout3d embedding embedding_bag group_norm instance_norm interpolate layer_norm
            max_pool1d max_pool2d max_pool3d multi_head_attention_forward normalize rms_norm""",
        "loss": """
            binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss
            cosine_similarity cross_entropy gaussian_nll_loss hinge_embedding_loss huber_loss
            kl_div l1_loss margin_ranking_loss mse_loss nll_loss poisson_nll_loss smooth_l1_loss
            soft_margin_loss triplet_margin_loss""",
    }.items()
}
"""Operators with torch's own meaning: the function of the name that torch has, or a method."""

OWN_FUNCTIONS: Final = (
    "sn_fma",
    "sn_gather",
    "sn_imm",
    "sn_iteridx",
    "sn_multinomial",
    "sn_reduce",
    "sn_scatter",
    "sn_select",
    "sn_zipmapreduce",
    "triu_fill",
)
"""Functions that SambaFlow has and torch has not."""

FUNCTIONAL: Final[tuple[str, ...]] = tuple(
    sorted({*OWN_FUNCTIONS, *(name for names in TORCH_OPERATORS.values() for name in names)})
)
"""Every name of ``samba_onnx.functional`` that is an operator; each is also one of ``samba_onnx``."""
