"""Lets a module compute in bfloat16 what it states in float32, while it is exported and while it is run.

What torch computes then is what the program is compared with: both see every function with the same
types, and gradients go back through the same conversions.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from samba_onnx.export.capture.function_kinds import (
    CARRYING,
    CONVERSIONS,
    NORMALISING,
    PRODUCTS,
    QUESTIONS,
)
from samba_onnx.export.naming import operator_name
from samba_onnx.facts.precisions import (
    CONVERSION,
    NO_PRODUCT,
    STATISTICS,
    SWITCHED_OFF,
    Precision,
    write_precision,
)
from samba_onnx.functional.table import is_in_place

__all__ = [
    "Computing",
    "computing",
    "computing_in",
    "current_precision",
    "is_widened",
    "native_precision",
]

_CURRENT: ContextVar[Precision] = ContextVar("precision", default=Precision.FP32)
_DTYPE: Final = Tensor.dtype.__get__  # type: ignore[attr-defined]
_SWITCHED_OFF: ContextVar[bool] = ContextVar("switched_off", default=False)


@contextlib.contextmanager
def computing_in(precision: Precision) -> Iterator[None]:
    """Let modules that are exported or compared with within the context compute in a precision.

    Args:
        precision: The precision.
    """
    token = _CURRENT.set(precision)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_precision() -> Precision:
    """Return the precision of the innermost :func:`computing_in`; the module's own outside of any."""
    return _CURRENT.get()


@contextlib.contextmanager
def native_precision() -> Iterator[None]:
    """Compute in float32 within the context, in the ``forward`` of a module that computes in bfloat16."""
    token = _SWITCHED_OFF.set(True)
    try:
        yield
    finally:
        _SWITCHED_OFF.reset(token)


def is_widened(node: fx.Node) -> bool:
    """Return whether a node of a graph that was exported in a precision makes float32 of bfloat16.

    Args:
        node: Any node.
    """
    source = node.args[0] if node.args else None
    if current_precision().is_own or not isinstance(source, fx.Node):
        return False
    if operator_name(node) not in ("to", "_to_copy", "to_copy"):
        return False
    types = [getattr(one.meta.get("val"), "dtype", None) for one in (node, source)]
    return types == [torch.float32, torch.bfloat16]


class Computing:
    """What a module computes in, while it is exported or run once."""

    def __init__(self, precision: Precision) -> None:
        """Begin with nothing computed.

        Args:
            precision: The precision.
        """
        self.precision = precision
        self.wide: dict[str, Counter[str]] = {}
        """Functions that computed in float32, with how often they did, by the reason."""
        self.wide_types = frozenset(
            {torch.float32} | ({torch.float16} if self._is_whole else set())
        )
        """Types that become bfloat16; an RDU has no float16, so that nothing else would compute there."""
        self._returned = torch.float32
        """The type of outputs in the place of bfloat16."""
        self.narrows = False
        """Whether anything was made bfloat16."""
        self._own: Any = WeakIdKeyDictionary()
        """Tensors that the module itself states in bfloat16: what it has and is given so, and what it
        computes of nothing else."""

    def metadata(self) -> dict[str, str]:
        """Return what a PEF says of it; nothing where a module computes in its own types."""
        if self.precision.is_own:
            return {}
        return write_precision(self.precision, self.wide, idle=not self.narrows)

    @property
    def _is_whole(self) -> bool:
        return self.precision in (Precision.BF16, Precision.BF16_THROUGHOUT)

    def look_at(self, tensors: Any) -> None:
        """Note what a module has and is given, nested or not: a module of float16 alone returns float16."""
        leaves = list(filter(_is_floating, pytree.tree_leaves(tensors)))
        types = set(map(_type, leaves))
        half = torch.float16 in types and torch.float32 not in types
        self._returned = torch.float16 if half and self._is_whole else torch.float32
        self.mark_own(leaves)

    def mark_own(self, results: Any) -> None:
        """Note that the module itself states the tensors among results in bfloat16 that are so."""
        for leaf in pytree.tree_leaves(results):
            if _is_floating(leaf) and _type(leaf) is torch.bfloat16:
                self._own[leaf] = True

    def is_own(self, leaf: Any) -> bool:
        """Return whether something is a tensor that the module itself states in bfloat16."""
        return _is_floating(leaf) and leaf in self._own

    def returned(self, outputs: Any) -> Any:
        """Return outputs in the types that the module would have returned.

        Args:
            outputs: Nested tensors, and others.
        """
        if self.precision.is_own:
            return outputs
        return pytree.tree_map(
            lambda x: x if self.is_own(x) else _widened(x, self._returned), outputs
        )

    def note(self, reason: str, name: str) -> None:
        """Count a function that computes in float32."""
        self.wide.setdefault(reason, Counter())[name] += 1


@contextlib.contextmanager
def computing(module: nn.Module) -> Iterator[Computing]:
    """Let a module compute in the current precision within the context, and return its own types.

    Args:
        module: Gets hooks around ``forward``, outside of which nothing changes: torch's exporter calls
            functions of its own.
    """
    state = Computing(current_precision())
    if state.precision.is_own:
        yield state
        return
    modes: list[_Narrowing] = []

    def enter(called: nn.Module, args: Any, keywords: Any) -> None:
        state.look_at((args, keywords, *called.parameters(), *called.buffers()))
        modes.append(_Narrowing(state))
        modes[-1].__enter__()  # type: ignore[no-untyped-call]  # torch annotates nothing here

    def leave(_module: nn.Module, _args: Any, returned: Any) -> Any:
        modes.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return None if returned is None else state.returned(returned)

    hooks = (
        module.register_forward_pre_hook(enter, with_kwargs=True),
        module.register_forward_hook(leave, always_call=True),
    )
    try:
        yield state
    finally:
        for hook in hooks:
            hook.remove()


class _Narrowing(TorchFunctionMode):
    """Gives functions operands of bfloat16, or of float32 where they compute in it."""

    def __init__(self, state: Computing) -> None:
        super().__init__()
        self._state = state
        self._precision = state.precision
        self._copies: Any = WeakIdKeyDictionary()
        """Copies of float32 tensors in bfloat16, with the version that was copied, so that a weight
        that is read twice is converted once, and its gradients are added up before the conversion."""
        self._kept: Any = WeakIdKeyDictionary()
        """Tensors that are float32 because the module converted them, or was switched off."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function; called by torch."""
        keywords = dict(kwargs or {})
        name = getattr(func, "__name__", "").partition(".")[0]
        if func is _DTYPE:
            return self._dtype(args[0])
        if name in QUESTIONS:
            return func(*args, **keywords)
        # The target's type decides, whatever function writes into it: names are looked at afterwards.
        if is_in_place(func) or keywords.get("out") is not None:
            return self._in_place(func, args, keywords)
        if name in NORMALISING and self._has_statistics(name, args, keywords):
            return self._normalized(func, name, args, keywords)
        if not _SWITCHED_OFF.get() and _converts(name, args, keywords):
            return self._converted(func, args, keywords)
        return self._called(func, name, args, keywords)

    def _dtype(self, tensor: Tensor) -> torch.dtype:
        """Return the type of a tensor: that in which it will be read."""
        dtype: torch.dtype = _DTYPE(tensor)
        narrow = self._precision in (Precision.BF16, Precision.BF16_THROUGHOUT)
        if narrow and dtype in self._state.wide_types and self._is_plain(tensor):
            return torch.bfloat16
        return dtype

    def _is_plain(self, tensor: Tensor) -> bool:
        return tensor not in self._kept and not _SWITCHED_OFF.get()

    def _called(
        self, func: Callable[..., Any], name: str, args: Any, keywords: dict[str, Any]
    ) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, keywords)) if _is_floating(leaf)]
        if tensors and all(map(self._state.is_own, tensors)):
            results = func(*args, **keywords)
            self._state.mark_own(results)
            return results
        reason = self._reason(name, tensors)
        if reason is None:
            args, keywords = pytree.tree_map(self._narrow, (args, keywords))
            if self._makes_float16(name, args, keywords):
                return args[0].to(torch.bfloat16)
            return func(*args, **keywords)
        if not reason:
            return func(*args, **keywords)
        args, keywords = pytree.tree_map(_widened, (args, keywords))
        results = func(*args, **keywords)
        computed = [leaf for leaf in pytree.tree_leaves(results) if _is_float32(leaf)]
        for leaf in computed:
            self._kept[leaf] = True
        if computed and name not in CARRYING:
            self._state.note(reason, name)
        return results

    def _reason(self, name: str, tensors: list[Tensor]) -> str | None:
        """Return why a function computes in float32; empty where its types stay, None where it does not."""
        if _SWITCHED_OFF.get():
            return SWITCHED_OFF
        if self._precision is Precision.BF16_THROUGHOUT:
            return None
        if self._precision is Precision.MIXED:
            if name in PRODUCTS:
                return None
            return "" if name in CARRYING and len(tensors) == 1 else NO_PRODUCT
        kept = [tensor for tensor in tensors if tensor in self._kept]
        if not kept:
            return None
        if name in PRODUCTS and any(_type(tensor) is torch.bfloat16 for tensor in tensors):
            return None
        return CONVERSION

    def _narrow(self, leaf: Any) -> Any:
        """Return a float32 tensor in bfloat16, and one of float16 where all is; anything else as it is."""
        if not _is_floating(leaf) or _type(leaf) not in self._state.wide_types:
            return leaf
        self._state.narrows = True
        version = _version(leaf)
        known = self._copies.get(leaf)
        # Gradients that are computed for one of both only are no reason to convert twice.
        if known is None or known[0] != version or known[2] != torch.is_grad_enabled():
            known = (version, leaf.to(torch.bfloat16), torch.is_grad_enabled())
            self._copies[leaf] = known
        return known[1]

    def _makes_float16(self, name: str, args: Any, keywords: Mapping[str, Any]) -> bool:
        """Return whether a call converts a tensor to float16, where that is bfloat16."""
        if torch.float16 not in self._state.wide_types or not args:
            return False
        types = [one for one in (*args, keywords.get("dtype")) if isinstance(one, torch.dtype)]
        return name == "half" or (name in CONVERSIONS and types == [torch.float16])

    def _converted(self, func: Callable[..., Any], args: Any, keywords: dict[str, Any]) -> Any:
        """Convert a tensor to float32, as the module asks for."""
        tensor = args[0]
        if self._precision is Precision.BF16_THROUGHOUT:
            if self._state.is_own(tensor):
                return tensor.view_as(tensor)  # another tensor, which is returned in float32
            return self._narrow(tensor) if tensor.is_floating_point() else tensor.to(torch.bfloat16)
        if self._precision is Precision.MIXED:
            return func(*args, **keywords)
        # A view is another tensor: what others read of this one stays bfloat16.
        result = tensor.view_as(tensor) if _is_float32(tensor) else func(*args, **keywords)
        self._kept[result] = True
        return result

    def _in_place(self, func: Callable[..., Any], args: Any, keywords: dict[str, Any]) -> Any:
        """Call what writes into a tensor, with operands of that tensor's type."""
        target: Any = keywords.get("out")
        target = args[0] if target is None and args else target
        if not _is_floating(target) or _type(target) not in (torch.float32, torch.bfloat16):
            return func(*args, **keywords)
        dtype = _type(target)

        def fitting(leaf: Any) -> Any:
            narrow = _is_float32(leaf) or (_is_floating(leaf) and _type(leaf) is torch.bfloat16)
            return leaf if leaf is target or not narrow else leaf.to(dtype)

        args, keywords = pytree.tree_map(fitting, (args, keywords))
        return func(*args, **keywords)

    def _has_statistics(self, name: str, args: Any, keywords: Mapping[str, Any]) -> bool:
        places = (args[place] for place in NORMALISING[name] if place < len(args))
        named = (keywords.get(key) for key in ("running_mean", "running_var"))
        return any(map(_is_float32, (*places, *named)))

    def _normalized(
        self, func: Callable[..., Any], name: str, args: Any, keywords: dict[str, Any]
    ) -> Any:
        """Normalise by statistics, which are float32, as are weight and bias beside them."""
        narrow = self._precision is not Precision.MIXED and not _SWITCHED_OFF.get()
        first = args[0] if args else keywords["input"]
        converted = self._narrow(first) if narrow else _widened(first)
        if narrow and first in self._kept:
            converted = first
        if args:
            args = (converted, *args[1:])
        else:
            keywords["input"] = converted
        result = func(*args, **keywords)
        self._state.note(STATISTICS if narrow else NO_PRODUCT, name)
        return result


def _converts(name: str, args: Any, keywords: Mapping[str, Any]) -> bool:
    """Return whether a call converts a tensor to float32."""
    if name not in CONVERSIONS or not args or not isinstance(args[0], Tensor):
        return False
    if name == "float":
        return True
    stated = [*args[1:], keywords.get("dtype")]
    return torch.float32 in stated or any(
        _is_float32(leaf)
        for leaf in (*args[1:], keywords.get("other"))
        if name in ("to", "type_as")
    )


def _type(tensor: Tensor) -> torch.dtype:
    with torch._C.DisableTorchFunction():
        return tensor.dtype


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and _type(leaf).is_floating_point


def _is_float32(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and _type(leaf) is torch.float32


def _widened(leaf: Any, dtype: torch.dtype = torch.float32) -> Any:
    narrow = isinstance(leaf, Tensor) and _type(leaf) is torch.bfloat16
    return leaf.to(dtype) if narrow else leaf


def _version(tensor: Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:  # tensors of inference mode count no versions
        return 0
