"""The dispatch table: what a torch function or method means when a SambaTensor is given to it.

One row per operator. A row is found by the operator's name, whichever way it is spelled:
``torch.add``, ``Tensor.add``, ``Tensor.add_``, ``x + y``, ``y += x`` and ``torch.nn.functional``'s
functions all lead to one row. A callable without a row is computed on the host and recorded.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from samba_onnx.errors import InternalError
from samba_onnx.operator_names import OWN_FUNCTIONS, TORCH_OPERATORS

Function = Callable[..., Any]


class FunctionKind(enum.Enum):
    """How a call of a row's function is carried out."""

    OPERATOR = "operator"
    """The function computes tensors; they come back as SambaTensors."""
    QUERY = "query"
    """The function tells or sets something about a tensor; its result stays as torch returns it."""
    HOST = "host"
    """The function has no row: it is computed on the host, with a warning the first time."""


class Reads(enum.Enum):
    """The tensors of a call whose values count, and not only shape, dtype and the like."""

    ALL = "all"
    FIRST = "first"
    """Others say what the first one becomes: ``x.type_as(other)``, ``x.view_as(other)``."""
    OTHERS = "others"
    """The first one says what is made: ``zeros_like(x)``, ``x.new_full(size, value)``."""
    NONE = "none"


@dataclass(frozen=True)
class FunctionRow:
    """The row of one operator: how it is called, and what becomes of its tensors."""

    name: str
    """Name of the operator; every spelling of it leads here."""
    kind: FunctionKind = FunctionKind.OPERATOR
    cpu_only: frozenset[str] = field(default=frozenset())
    """Keywords that work on the host and that the RDU does not have."""
    keeps_marks: bool = False
    """Whether the result is the same tensor in another form, which keeps name, region and hints."""
    reads: Reads = Reads.ALL
    """The tensors of a call whose values the operator needs."""
    overwrites: bool = False
    """Whether the operator, in place, reads nothing of the tensor that it writes."""
    implementation: Function | None = None
    """SambaFlow's own function where it differs from torch's; spellings in place stay torch's."""


_CPU_ONLY: Final = {"abs": {"out"}, "add": {"alpha", "out"}, "addmm": {"out"}}
"""By operator, the keywords that work on the host and that the RDU does not have."""

_CASTS: Final = """
    bfloat16 bool byte char detach double float half int long short to type type_as"""

_INITIALISERS: Final = """
    constant copy dirac eye fill kaiming_normal kaiming_uniform normal ones orthogonal random
    trunc_normal uniform xavier_normal xavier_uniform zero zeros"""

_CONSTRUCTION: Final = """
    clone empty_like full_like grad index new new_empty new_empty_strided new_full new_ones
    new_tensor new_zeros ones_like rand_like randint_like randn_like sparse zeros_like"""

_BY_EXAMPLE: Final = """
    empty_like full_like new_empty new_empty_strided new_full new_ones new_tensor new_zeros
    ones_like rand_like randint_like randn_like zeros_like"""

_TO_EXAMPLE: Final = "expand reshape to type_as view"
"""By the names of their rows: ``expand_as`` has that of ``expand``."""

_VIEWS: Final = "H T mH mT real imag __iter__ __reversed__"

_READS: Final = """
    __array__ __bool__ __complex__ __contains__ __dlpack__ __float__ __format__ __index__ __int__
    __long__ __nonzero__ allclose apply_ backward equal is_nonzero item numpy tolist"""

_QUERIES: Final = """
    __array_wrap__ __cuda_array_interface__ __deepcopy__ __dir__ __dlpack_device__ __hash__ __len__
    __reduce_ex__ __repr__ __setstate__ _has_compatible_shallow_copy_type _is_view
    _make_subclass _nested_tensor_size _nested_tensor_strides _reduce_ex_internal _typed_storage
    can_cast data_ptr dense_dim dim dim_order element_size get_device has_names is_coalesced
    is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg is_pinned
    is_same_size is_set_to is_shared is_signed is_storage is_tensor layout ndimension nelement
    numel promote_types register_hook register_post_accumulate_grad_hook result_type retain_grad
    share_memory_ size sparse_dim storage storage_offset storage_type stride sym_numel
    untyped_storage"""

_QUERY_NAMES: Final = frozenset((*_READS.split(), *_QUERIES.split()))
_VERBATIM: Final = _QUERY_NAMES | frozenset(_VIEWS.split())

_SPELLINGS: Final = {
    "_threshold": "threshold",
    "absolute": "abs",
    "adaptive_avg_pool": "adaptive_avg_pool1d",
    "adaptive_max_pool2d_with_indices": "adaptive_max_pool2d",
    "and": "bitwise_and",
    "arccosh": "acosh",
    "arcsinh": "asinh",
    "arctanh": "atanh",
    "broadcast_tensors": "broadcast_to",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "constant_pad_nd": "pad",
    "divide": "div",
    "dsplit": "split",
    "expand_as": "expand",
    "fliplr": "flip",
    "flipud": "flip",
    "floordiv": "floor_divide",
    "getitem": "index",
    "greater": "gt",
    "greater_equal": "ge",
    "hsplit": "split",
    "index_put": "index",
    "invert": "bitwise_not",
    "less": "lt",
    "less_equal": "le",
    "log_sigmoid": "logsigmoid",
    "max_pool1d_with_indices": "max_pool1d",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "mod": "remainder",
    "movedim": "moveaxis",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "or": "bitwise_or",
    "pixel_unshuffle": "pixel_shuffle",
    "pos": "contiguous",
    "positive": "contiguous",
    "ravel": "flatten",
    "reshape_as": "reshape",
    "rsub": "sub",
    "setitem": "index",
    "split_with_sizes": "split",
    "subtract": "sub",
    "swapdims": "transpose",
    "tensor_split": "split",
    "true_divide": "div",
    "truediv": "div",
    "upsample": "interpolate",
    "view_as": "view",
    "vsplit": "split",
    "xor": "bitwise_xor",
}
"""Other names of the same operators; those of Python's operators without their underscores."""

_READ_BY: Final = {
    **dict.fromkeys(_BY_EXAMPLE.split(), Reads.OTHERS),
    **dict.fromkeys(_TO_EXAMPLE.split(), Reads.FIRST),
    **dict.fromkeys(_QUERIES.split(), Reads.NONE),
}
"""By operator, of which tensors it needs the values, where that is not of all."""

_NOT_IN_PLACE: Final = frozenset({"__index__", "__int__", "__invert__", "__iter__"})

_DESCRIPTOR_TYPES: Final = (types.MethodWrapperType, types.MethodType)


def _initial_rows() -> dict[str, FunctionRow]:
    rows: dict[str, FunctionRow] = {}
    operators = [name for names in TORCH_OPERATORS.values() for name in names]
    others = (_CONSTRUCTION, _VIEWS, _CASTS, _INITIALISERS, _READS, _QUERIES)
    for name in (*operators, *OWN_FUNCTIONS, *(name for part in others for name in part.split())):
        # Two lists name it, and the second would silently replace what the first says of it.
        if name in rows:
            raise InternalError(f"operator {name!r} has two rows")
        rows[name] = FunctionRow(
            name,
            FunctionKind.QUERY if name in _QUERY_NAMES else FunctionKind.OPERATOR,
            cpu_only=frozenset(_CPU_ONLY.get(name, ())),
            keeps_marks=name == "contiguous" or name in _CASTS.split(),
            reads=_READ_BY.get(name, Reads.ALL),
            overwrites=name in _INITIALISERS.split(),
        )
    return rows


class Table:
    """All rows, and the row of every callable that was looked up before."""

    def __init__(self) -> None:
        self._rows = _initial_rows()
        self._row_of: dict[Function, FunctionRow] = {}

    @property
    def rows(self) -> Mapping[str, FunctionRow]:
        """Every row by the name of its operator."""
        return types.MappingProxyType(self._rows)

    def find(self, function: Function) -> FunctionRow:
        """Return the row of a torch function, a method, or a descriptor's ``__get__`` or ``__set__``.

        Args:
            function: The callable that torch hands to ``__torch_function__``.

        Returns:
            The row of the operator; a row of kind ``HOST`` for a function that has none.
        """
        # Names are taken apart once for each function: this is asked in every call of an operator.
        row = self._row_of.get(function)
        if row is None:
            row = self._row_of[function] = self._look_up(function)
        return row

    def implement(self, name: str, implementation: Function) -> None:
        """Give an operator SambaFlow's own meaning.

        Args:
            name: Name of the operator's row.
            implementation: A function of the same arguments; torch treats SambaTensors as plain
                ones while it runs.

        Raises:
            InternalError: There is no such row, or it has an implementation already.
        """
        row = self._rows.get(name)
        if row is None or row.implementation is not None:
            raise InternalError(f"operator {name!r} has no row, or an implementation already")
        self._rows[name] = replace(row, implementation=implementation)
        # Whatever was looked up before has the row as it was.
        self._row_of.clear()

    def _look_up(self, function: Function) -> FunctionRow:
        name = _operator_name(function)
        if name is None:
            # Such as a shape: no values are made to read it, nor to set it.
            return FunctionRow("attribute", FunctionKind.QUERY, reads=Reads.NONE)
        return self._rows.get(name) or FunctionRow(name, FunctionKind.HOST)


def is_in_place(function: Function) -> bool:
    """Whether a callable writes its first argument and returns it, judged by its name.

    Args:
        function: The callable that torch hands to ``__torch_function__``.
    """
    name: str = getattr(function, "__name__", "")
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in _NOT_IN_PLACE)
    return name.endswith("_")


def _operator_name(function: Function) -> str | None:
    """Return the operator behind a callable; None for an attribute of a tensor that is no view."""
    name: str = getattr(function, "__name__", type(function).__name__)
    if name in {"__get__", "__set__", "__delete__"} and isinstance(function, _DESCRIPTOR_TYPES):
        attribute = getattr(function.__self__, "__name__", "")
        return attribute if attribute in _VIEWS.split() else None
    if name in _VERBATIM:
        return name
    bare = name.strip("_")
    if name.startswith("__") and bare not in _SPELLINGS and bare[:1] in {"i", "r"}:
        # x += y is __iadd__ and y + x may be __radd__: the same operator as x + y.
        rest = bare[1:]
        bare = rest if rest in _SPELLINGS or hasattr(torch, rest) else bare
    # Private functions of torch keep their underscore: without it some would be taken for
    # public operators that have other arguments.
    if name.startswith("_") and not name.startswith("__"):
        return _SPELLINGS.get(name, name)
    return _SPELLINGS.get(bare, bare)


TABLE: Final = Table()
"""The table of this process."""
