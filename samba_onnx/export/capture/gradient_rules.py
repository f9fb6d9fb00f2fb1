"""Rules for gradients that a user's program has of its own: functions with a backward, and hooks.

While a module is exported, what they do to the values of the forward is all that torch records. So
each of them leaves a node ``gradient_rule`` in the exported graph, with the number of the rule and
the tensors that it is applied to. Whoever differentiates the graph applies the rule again, to the
tensors that are differentiated, and automatic differentiation does the rest as it does in eager torch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.autograd import Function
from torch.fx.node import has_side_effect
from torch.utils import _pytree as pytree
from torch.utils.hooks import BackwardHook

from samba_onnx.errors import GradientError, InternalError
from samba_onnx.export.capture.branches import TakenValues
from samba_onnx.export.capture.explanations import explained
from samba_onnx.program.source_location import user_line


class _RuleOperator(HigherOrderOperator):
    """The operator of the nodes that rules leave in an exported graph; nothing ever calls it."""

    def __init__(self) -> None:
        super().__init__("gradient_rule")  # type: ignore[no-untyped-call]  # torch annotates nothing

    def __call__(self, *operands: Any) -> Any:
        """Refuse: whoever runs an exported graph applies the rule itself."""
        raise InternalError("a rule for gradients was called as an operator: please report this")


RULE: Final = _RuleOperator()
has_side_effect(RULE)  # so that a hook, which returns nothing, is no dead code


class Known(Protocol):
    """Tensors that the user's code knows from elsewhere, and what is differentiated in their place."""

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the user's that finds the right tensors when it is called.

        Args:
            function: A hook, or the backward of a function.
        """

    def add(self, own: Tensor, traced: Tensor) -> None:
        """Take a tensor for another one from now on.

        Args:
            own: A tensor that a hook or function may know.
            traced: The tensor that is differentiated in its place.
        """


class GradientRule(Protocol):
    """A rule, as it is applied again when an exported graph is differentiated."""

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Apply the rule.

        Args:
            tensors: What its node reads.
            known: Takes what the user's code must find in the place of its own tensors.

        Returns:
            What its node returns: the tensors among its results.
        """


@dataclass(frozen=True)
class FunctionRule:
    """A call of a ``torch.autograd.Function``."""

    function: type[Function]
    arguments: tuple[Any, ...]
    """Arguments of ``apply``, with holes in the place of tensors; see ``holes``."""
    taken: TakenValues
    """Numbers that its forward took out of tensors when the module was exported."""

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Call the function; see ``GradientRule``."""
        arguments = _filled(self.arguments, tensors)
        with self.taken.repeated():
            function: Any = _with_backward(self.function, known.within)
            return tensors_of(function.apply(*arguments))


def _with_backward(
    function: type[Function], within: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> type[Function]:
    """Return a function whose backward is changed, by whichever of its two names it is written."""
    # torch takes either name, and refuses a function that has both.
    name = "backward" if function.backward is not Function.backward else "vjp"
    # A subclass: the user's own class must stay as it is for calls outside.
    return type(
        function.__name__, (function,), {name: staticmethod(within(getattr(function, name)))}
    )


@dataclass(frozen=True)
class TensorHookRule:
    """A hook that ``forward`` registers on a tensor that it computes."""

    hook: Callable[..., Any]

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Register the hook; see ``GradientRule``."""
        for tensor in tensors:
            # torch refuses a hook on a tensor that needs no gradient, and none would ever come.
            if tensor.requires_grad:
                tensor.register_hook(known.within(self.hook))  # type: ignore[no-untyped-call]
        return []


@dataclass(frozen=True)
class GradientCallRule:
    """A call of ``torch.autograd.grad`` in ``forward``, as for a gradient penalty."""

    arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    """Positional and keyword arguments, with holes in the place of tensors; see ``holes``."""

    @property
    def creates_graph(self) -> bool:
        """Whether the gradients are to be differentiated themselves."""
        args, keywords = self.arguments
        # It may be given by position as well as by name.
        bound = inspect.signature(torch.autograd.grad).bind(*args, **keywords)
        return bool(bound.arguments.get("create_graph", False))

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Compute the gradients; see ``GradientRule``."""
        args, keywords = _filled(self.arguments, tensors)
        return tensors_of(torch.autograd.grad(*args, **keywords))


@dataclass(frozen=True)
class RequiringRule:
    """A tensor that ``forward`` wants gradients of, or does not want any of."""

    wanted: bool

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Say so; see ``GradientRule``."""
        for tensor in tensors:
            tensor.requires_grad_(self.wanted)
        return []


@dataclass
class ModuleCall:
    """One call of a module that has full backward hooks."""

    module: nn.Module
    hooks: list[Any]
    before: list[Any]
    """Its full backward pre-hooks."""
    _both_ends: BackwardHook | None = field(default=None, init=False)

    def begin(self, arguments: tuple[Any, ...], known: Known) -> Any:
        """Put torch's own hook around the arguments of the call.

        Args:
            arguments: Positional ones.
            known: What the user's hooks find in the place of their own tensors.
        """
        hooks = list(map(known.within, self.hooks))
        before = list(map(known.within, self.before))
        # torch's own class decides which gradients hooks see, so that they see what eager torch
        # shows.
        self._both_ends = BackwardHook(self.module, hooks, before)
        return self._both_ends.setup_input_hook(arguments)  # type: ignore[no-untyped-call]

    def end(self, results: tuple[Any, ...], known: Known) -> Any:
        """Put torch's own hook around the results of the call.

        Args:
            results: What ``forward`` returned, as a tuple.
            known: As for ``begin``.
        """
        assert self._both_ends is not None
        return self._both_ends.setup_output_hook(results)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class ModuleHookRule:
    """One end of a call of a module that has full backward hooks."""

    step: Callable[[tuple[Any, ...], Known], Any]
    """``ModuleCall.begin`` or ``ModuleCall.end``."""
    operands: tuple[Any, ...]
    """Arguments or results of the call, with holes in the place of tensors."""

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Set up torch's own hook; see ``GradientRule``."""
        return tensors_of(self.step(_filled(self.operands, tensors), known))


@dataclass(frozen=True)
class KeepRule:
    """Tensors of the forward that hooks and functions may know by closures of theirs."""

    own: tuple[Tensor, ...]
    """The tensors, as they were when the module was exported."""

    def run(self, tensors: Sequence[Tensor], known: Known) -> list[Tensor]:
        """Tell what is in their place; see ``GradientRule``."""
        for own, traced in zip(self.own, tensors, strict=True):
            known.add(own, traced)
        return []


@dataclass(frozen=True)
class Hook:
    """A hook of the user's, which must change the gradients that it is given."""

    function: Callable[..., Any]

    def __call__(self, *operands: Any) -> Any:
        """Call the hook, as automatic differentiation does.

        Raises:
            GradientError: It cannot be traced, or only looks at gradients.
        """
        gradients = tensors_of(operands)
        versions = [gradient._version for gradient in gradients]
        try:
            result = self.function(*operands)
        except Exception as error:  # whatever the user's hook raises
            raise GradientError(
                f"the hook {code_place(self.function)} cannot be compiled: {explained(error)}"
            ) from error
        # A hook may also write into the gradient, and return nothing.
        written = [gradient._version for gradient in gradients] != versions
        if not written and not tensors_of(result):
            raise GradientError(
                f"the hook {code_place(self.function)} returns no gradient: it would run once, "
                "while the model is compiled, and never on the device; remove it and read gradients "
                "from the session, or let it return the gradient to go on with"
            )
        return result


def checked_hook(hook: Callable[..., Any]) -> Hook:
    """Return a hook of the user's as one that says what is wrong with it.

    Args:
        hook: As it is registered on a tensor or module.

    Raises:
        GradientError: It is one of several tensors' hooks that torch calls together.
    """
    plain = _plain(hook)
    code = getattr(plain, "__code__", None)  # what is written in C has none
    # torch wraps such hooks in a function of that file, by which alone they can be told.
    if code is not None and code.co_filename == torch.autograd.graph.__file__:
        user = inspect.getclosurevars(plain).nonlocals.get("fn", hook)
        raise GradientError(
            f"the hook {code_place(user)} is registered by register_multi_grad_hook, which "
            "changes no gradient: it would run once, while the model is compiled, and never on the "
            "device; remove it, and read gradients from the session"
        )
    return Hook(hook)


def code_place(function: Callable[..., Any]) -> str:
    """Return where the code of a function begins, as ``at model.py:12``; what it is if that is no user's.

    Args:
        function: Any callable, as the user gave it.
    """
    plain = _plain(function)
    if code := getattr(plain, "__code__", None):
        line = user_line(
            f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}'
        )
        if line:
            return f"at {line}"
    name = getattr(plain, "__qualname__", type(plain).__name__)
    return f"({name} of {(getattr(plain, '__module__', '') or 'torch').partition('.')[0]})"


def _plain(function: Any) -> Any:
    """Return the function that a partial, a method or an object with ``__call__`` calls."""
    # They may lie in each other in any order.
    while isinstance(function, functools.partial | Hook):
        function = function.func if isinstance(function, functools.partial) else function.function
    if not inspect.isroutine(function) and not hasattr(function, "__code__"):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors among nested values, in order.

    Args:
        value: Nested tuples, lists and mappings.
    """
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def holes(value: Any) -> Any:
    """Return nested values with a mark in the place of tensors, which ``run`` fills again.

    Args:
        value: Nested tuples, lists and mappings.
    """
    return pytree.tree_map(lambda leaf: _HOLE if isinstance(leaf, Tensor) else leaf, value)


# An object of its own, as None may be an argument.
_HOLE: Final = object()


def _filled(template: Any, tensors: Sequence[Tensor]) -> Any:
    left = iter(tensors)
    return pytree.tree_map(lambda leaf: next(left) if leaf is _HOLE else leaf, template)
