"""What functions of torch's are to a precision, by name."""

from __future__ import annotations

from typing import Final

__all__ = ["CARRYING", "CONVERSIONS", "NORMALISING", "PRODUCTS", "QUESTIONS"]

PRODUCTS: Final = frozenset(
    {
        *("__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "baddbmm", "bilinear", "bmm"),
        *("chain_matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"),
        *("conv_transpose3d", "convolution", "einsum", "linear", "matmul", "mm", "mv"),
        *("multi_head_attention_forward", "scaled_dot_product_attention", "tensordot"),
    }
)
"""Functions that multiply matrices: GEMM-like ones, in SambaFlow's words."""
CARRYING: Final = frozenset(
    {
        *("__getitem__", "chunk", "clone", "contiguous", "detach", "expand", "expand_as"),
        *("flatten", "flip", "max_pool1d", "max_pool2d", "max_pool3d", "movedim", "narrow"),
        *("permute", "relu", "repeat", "repeat_interleave", "reshape", "reshape_as", "roll"),
        *("select", "split", "squeeze", "swapaxes", "t", "tensor_split", "tile", "transpose"),
        # Properties, such as ``.T``, arrive by the name of their getters.
        *("unbind", "unflatten", "unsqueeze", "view", "view_as", "__get__"),
    }
)
"""Functions of one tensor whose numbers are some of its own, which bfloat16 has if the tensor has it."""
QUESTIONS: Final = frozenset(
    {
        *("__len__", "backward", "dim", "element_size", "get_device", "is_complex"),
        *("is_contiguous", "is_floating_point", "is_nonzero", "numel", "register_hook"),
        # ``__set__`` is the assignment of a property, as of ``.grad``.
        *("retain_grad", "size", "stride", "storage_offset", "data_ptr", "__set__", "__repr__"),
        *("__format__", "register_post_accumulate_grad_hook", "is_inference", "_is_view"),
        *("type", "numpy"),
    }
)
"""What computes nothing."""
CONVERSIONS: Final = frozenset({"float", "to", "type_as", "_to_copy"})
NORMALISING: Final = {"batch_norm": (1, 2), "instance_norm": (1, 2)}
"""Functions that write running statistics, with the positions of these."""
