"""Notes the user's own rules for gradients while a module is exported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import _SingleLevelFunction
from torch.autograd.graph import saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    track_tensor_tree,
)
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.hooks import BackwardHook

from samba_onnx.errors import GradientError
from samba_onnx.export.capture.branches import TakenValues
from samba_onnx.export.capture.explanations import user_place
from samba_onnx.export.capture.gradient_rules import (
    RULE,
    FunctionRule,
    GradientCallRule,
    GradientRule,
    KeepRule,
    ModuleCall,
    ModuleHookRule,
    RequiringRule,
    TensorHookRule,
    checked_hook,
    code_place,
    holes,
    tensors_of,
)
from samba_onnx.export.capture.replacing import replaced

_SETTERS: Final = frozenset({torch._C._set_grad_enabled})


class RuleRecorder:
    """Rules in the order in which ``forward`` comes to them."""

    def __init__(self) -> None:
        self.rules: list[GradientRule] = []

    @property
    def differentiates_gradients(self) -> bool:
        """Whether ``forward`` computes gradients with ``create_graph``, to be differentiated again."""
        return any(isinstance(rule, GradientCallRule) and rule.creates_graph for rule in self.rules)

    @contextlib.contextmanager
    def recording(self, module: nn.Module) -> Iterator[None]:
        """Note every rule that is applied within the context, as a node of the traced graph.

        Args:
            module: What is traced.

        Raises:
            GradientError: It has hooks that cannot be compiled; the message names their line.
        """
        _refuse_old_hooks(module)
        # A module may be traced more than once: rules of an attempt before are in no graph.
        self.rules.clear()
        end = module.register_forward_hook(self._keep_live)
        try:
            with (
                # At the base class, as the user's code may have looked `apply` up before, under any
                # name.
                self._functions(),
                replaced(modules, "BackwardHook", self._module_hook),
                replaced(saved_tensors_hooks, "__enter__", _refuse_saved_tensors_hooks),
                _TensorHooks(self),
            ):
                yield
        finally:
            end.remove()

    @contextlib.contextmanager
    def _functions(self) -> Iterator[None]:
        """Let every call of a function's ``apply`` come here, whenever its name was looked up."""
        recorder = self

        def apply(function: Any, *arguments: Any) -> Any:
            # The base's apply would be this one; past it is torch's own.
            run = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
            if function is CheckpointFunction:
                raise GradientError(
                    f"{user_place()}: checkpointing with use_reentrant=True computes gradients by a "
                    "backward pass within the backward pass, which cannot be compiled: give "
                    "use_reentrant=False, which computes the same"
                )
            return recorder.call(function, run, arguments)

        _SingleLevelFunction.apply = classmethod(apply)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            del _SingleLevelFunction.apply  # type: ignore[attr-defined]

    def call(self, function: Any, run: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Call a function, and note the call if anything is differentiated through it.

        Args:
            function: The class that the user wrote.
            run: Torch's own ``apply`` of the class.
            arguments: Positional arguments of ``apply``.
        """
        tensors = tensors_of(arguments)
        differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        # As in eager torch: where nothing is differentiated, the backward is never used.
        if get_proxy_mode() is None or not differentiated:
            return run(*arguments)
        # A backward may read tensors around its class, which nothing else of the call leads to.
        enclosed = _enclosed_tensors(function)
        if enclosed:
            self.note(KeepRule(tuple(enclosed)), enclosed, [])
        taken = TakenValues()
        # What the forward does inside is no part of the graph: the rule runs it again.
        with disable_proxy_modes_tracing(), _Untraced(), taken.noted():
            result = run(*arguments)
        self.note(FunctionRule(function, holes(arguments), taken), tensors, tensors_of(result))
        return result

    def note(
        self, rule: GradientRule, tensors: Sequence[Tensor], results: Sequence[Tensor]
    ) -> None:
        """Write the node of a rule into the traced graph.

        Args:
            rule: The rule.
            tensors: What it reads.
            results: What it returns; from now on they are the node's.
        """
        mode = get_proxy_mode()
        if mode is None:
            return
        tracer: Any = mode.tracer
        operands = pytree.tree_map(tracer.unwrap_proxy, tuple(tensors))
        proxy = tracer.create_proxy("call_function", RULE, (len(self.rules), *operands), {})
        self.rules.append(rule)
        track_tensor_tree(list(results), proxy, constant=None, tracer=tracer)

    def require(self, tensors: Sequence[Tensor]) -> None:
        """Note that tensors of ``forward``'s own require gradients, right behind what makes them.

        Nothing is seen of it when they are made: ``torch.zeros(..., requires_grad=True)``, ``Variable`` and
        ``nn.Parameter`` leave operators behind that make plain tensors.

        Args:
            tensors: What gradients are asked for; those that operators computed of others, and those
                that the graph is given, are left as they are.
        """
        mode = get_proxy_mode()
        if mode is None:
            return
        tracer: Any = mode.tracer
        for tensor in tensors:
            node = getattr(tracer.unwrap_proxy(tensor), "node", None)
            if node is None or node.op != "call_function" or not tensor.is_leaf:
                # Placeholders have their flags from the module, and computed tensors follow from
                # what they are computed of.
                continue
            if tensor.requires_grad and not any(map(self._requires, node.users)):
                # What reads the tensor stands further down already.
                with tracer.graph.inserting_after(node):
                    self.note(RequiringRule(True), [tensor], [])

    def _requires(self, node: fx.Node) -> bool:
        """Return whether a node is that of a rule by which what it reads requires gradients."""
        return node.target is RULE and isinstance(self.rules[node.args[0]], RequiringRule)  # type: ignore[index]

    def _module_hook(self, module: nn.Module, hooks: Any, before: Any) -> BackwardHook:
        call = ModuleCall(module, list(map(checked_hook, hooks)), list(map(checked_hook, before)))
        return _NotedModuleHook(self, call)

    def _keep_live(self, _module: nn.Module, _inputs: Any, _outputs: Any) -> None:
        """Note the tensors that a hook or a backward may know, when the forward pass ends."""
        mode = get_proxy_mode()
        if self.rules and mode is not None:
            # Which of them a hook knows cannot be told, so all that the trace has are kept.
            live = tuple(tensor for tensor in mode.tracer.tensor_tracker if tensor is not None)
            self.note(KeepRule(live), live, [])


class _NotedModuleHook(BackwardHook):
    """Torch's hook around the call of a module, whose two ends are noted."""

    def __init__(self, recorder: RuleRecorder, call: ModuleCall) -> None:
        # Without hooks: they see gradients when the graph is differentiated, and not while it is
        # traced.
        super().__init__(call.module, [], [])
        self._recorder = recorder
        self._call = call

    def setup_input_hook(self, args: Any) -> Any:
        """Begin the call.

        Args:
            args: Positional arguments of the module.
        """
        with disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
            result = super().setup_input_hook(args)  # type: ignore[no-untyped-call]
        return self._noted(self._call.begin, tuple(args), result)

    def setup_output_hook(self, args: Any) -> Any:
        """End the call.

        Args:
            args: What the module returned: one value, or a tuple.
        """
        with disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
            result = super().setup_output_hook(args)  # type: ignore[no-untyped-call]
        return self._noted(self._call.end, args if isinstance(args, tuple) else (args,), result)

    def _noted(self, step: Callable[..., Any], operands: tuple[Any, ...], result: Any) -> Any:
        rule = ModuleHookRule(step, holes(operands))
        self._recorder.note(rule, tensors_of(operands), tensors_of(result))
        return result


class _TensorHooks(TorchFunctionMode):
    """Notes hooks on tensors."""

    def __init__(self, recorder: RuleRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _BACKWARD:
            raise GradientError(
                f"{user_place()}: a backward pass inside forward cannot be compiled: return what is "
                "to be differentiated as a loss, or compute with torch.autograd.grad"
            )
        if func is torch.autograd.grad:
            # Tensors that forward made with requires_grad left no trace of it up to here.
            self._recorder.require(tensors_of(args[1:2] or (kwargs or {}).get("inputs")))
            # torch's own backward would be traced; the rule computes it again instead.
            with disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
                result = func(*args, **(kwargs or {}))
            rule = GradientCallRule(holes((args, kwargs or {})))
            self._recorder.note(rule, tensors_of((args, kwargs)), tensors_of(result))
            return result
        result = func(*args, **(kwargs or {}))
        if func in _REQUIRING:
            # By position or by name; without it, requires_grad_() means yes.
            wanted = bool((*args, *(kwargs or {}).values(), True)[1])
            self._recorder.note(RequiringRule(wanted), [args[0]], [])
        elif func in _HOOKS:
            operands = [*args, *(kwargs or {}).values()]
            tensor, hook = operands
            if tensor.is_leaf:
                raise GradientError(
                    f"{user_place()}: forward registers a hook on a parameter, and so once more in "
                    "every run: register it once, before the model is compiled"
                )
            self._recorder.note(TensorHookRule(checked_hook(hook)), [tensor], [])
        # Equal and not identical: every access makes another wrapper of the same getter.
        elif func == _HISTORY and result is not None:
            return _History(result)
        return result


_HOOKS: Final = frozenset(
    {torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook}
)
_BACKWARD: Final = frozenset({torch.Tensor.backward, torch.autograd.backward})
_REQUIRING: Final = frozenset(
    {torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__}  # type: ignore[attr-defined]
)
_HISTORY: Final = torch.Tensor.grad_fn.__get__  # type: ignore[union-attr]


class _History:
    """The step of differentiation that made a tensor; it takes no hooks."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        if name in ("register_hook", "register_prehook"):
            raise GradientError(
                f"{user_place()}: a hook on grad_fn cannot be compiled: register it on the tensor, "
                "with tensor.register_hook"
            )
        return getattr(self._function, name)


class _Untraced(TorchFunctionMode):
    """Switches gradients on and off without a trace of it in the graph."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in _SETTERS:
            with torch._C.DisableTorchFunction():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _enclosed_tensors(function: Any) -> list[Tensor]:
    """Return the tensors that the methods of a function know from around its class."""
    cells: list[Any] = []
    for name in ("forward", "backward", "setup_context"):
        cells += getattr(getattr(function, name, None), "__closure__", None) or ()
    # A name that is assigned later has an empty cell, whose content cannot be read.
    contents = [cell.cell_contents for cell in cells if cell != type(cell)()]
    # One tensor may be known under several names.
    return list({id(tensor): tensor for tensor in tensors_of(contents)}.values())


def _refuse_saved_tensors_hooks(hooks: saved_tensors_hooks) -> None:
    """Enter a context of the user's that changes what is kept for the backward."""
    pack = hooks.pack_hook
    # torch uses these hooks itself, as for checkpoints that are repeated.
    if "/torch/" in pack.__code__.co_filename.replace("\\", "/"):
        torch._C._autograd._push_saved_tensors_default_hooks(pack, hooks.unpack_hook)
        return
    raise GradientError(
        f"{user_place()}: saved_tensors_hooks decide what the backward keeps, which the compiler "
        f"does for itself (the first of them is {code_place(pack)}): leave them out"
    )


def _refuse_old_hooks(module: nn.Module) -> None:
    """Refuse hooks of ``register_backward_hook``, which see other gradients than the module's."""
    listed = list(modules._global_backward_hooks.values())
    # torch has one list for both kinds, and a flag that says which kind is in it.
    old = [] if modules._global_is_full_backward_hook else listed
    for inner in module.modules():
        # None is a module without hooks.
        if inner._is_full_backward_hook is False:
            old += inner._backward_hooks.values()
    if old:
        raise GradientError(
            f"the hook {code_place(old[0])} is registered by register_backward_hook, which torch "
            "has given up: register it by register_full_backward_hook"
        )
