"""From a graph of ATen operators to ONNX, operator by operator."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import onnx_ir as ir
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

import samba_onnx.export.operators  # noqa: F401  fills the table
from samba_onnx.errors import InternalError, ModelError
from samba_onnx.export.decomposition.torch_decompositions import decomposed
from samba_onnx.export.naming import fusion_mark, refused, scope_name, whole_operator
from samba_onnx.export.operators.custom import CustomRule, find_custom
from samba_onnx.export.operators.custom_context import TranslationContext
from samba_onnx.export.operators.registry import (
    Context,
    Layout,
    Result,
    ResultSpec,
    Translation,
    find,
)
from samba_onnx.export.translation.builder import GraphBuilder, element, sizes
from samba_onnx.export.translation.complex_numbers import (
    REAL_TYPES,
    Complex,
    complex_translation,
    is_complex,
)
from samba_onnx.export.translation.custom_operators import custom_results
from samba_onnx.export.translation.element_types import onnx_type
from samba_onnx.export.translation.fallback import borrowed
from samba_onnx.program.scopes import OPERATOR_KEY
from samba_onnx.program.source_location import STACK_TRACE

_INLINED: Final = frozenset({"wrap_with_set_grad_enabled", "invoke_subgraph"})
"""Operators that call a graph of their own and change none of its values."""

_OF_ONE_TYPE: Final = frozenset(
    {
        "addmm",
        "baddbmm",
        "bmm",
        "conv1d",
        "conv2d",
        "conv3d",
        "convolution",
        "linear",
        "matmul",
        "mm",
    }
)
"""ATen operators that refuse tensors of different types when they compute."""

_TORCHS_OWN: Final = frozenset({"aten", "prim", "prims", "quantized", "samba"})
"""Namespaces of operators that torch and this package define."""


def translate(
    graph_module: fx.GraphModule,
    builder: GraphBuilder,
    inputs: Mapping[str, ir.Value],
    results: dict[fx.Node, Any] | None = None,
) -> list[ir.Value | None]:
    """Write a functional graph of ATen operators in ONNX.

    An operator that the table does not have is decomposed, and else exported by torch's own
    exporter. Operators whose results nothing reads are left out. Names of nodes start with the
    builder's scope and go on with the path of the module that they belong to.

    Args:
        graph_module: Every node has ``meta["val"]``; static shapes.
        builder: The graph that the nodes are appended to.
        inputs: Values by placeholder; those that are missing are never read.
        results: Filled with what was made of each node: a value, or a list of values.

    Returns:
        The flat outputs; None for one that is no tensor.

    Raises:
        ModelError: An operator cannot be written in ONNX; the message names the user's line.
        InternalError: A translation returns something else than torch states.
    """
    scope, metadata = builder.scope, builder.metadata
    try:
        translated = _Translator(builder, scope).run(graph_module, inputs, results)
    finally:
        builder.scope, builder.metadata = scope, metadata
    if any(isinstance(leaf, Complex) for leaf in translated):
        raise ModelError(
            "the module returns complex numbers, which ONNX cannot: return torch.view_as_real(...)"
        )
    return [leaf if isinstance(leaf, ir.Value) else None for leaf in translated]


@dataclass
class _Translator:
    """Translates graphs into one builder."""

    build: GraphBuilder
    root: str
    constants: dict[int, ir.Value] = field(default_factory=dict)
    decomposing: list[Any] = field(default_factory=list)
    """Users' own operators whose decompositions are being translated, one inside the other."""

    def run(
        self,
        graph_module: fx.GraphModule,
        inputs: Mapping[str, ir.Value],
        results: dict[fx.Node, Any] | None = None,
    ) -> list[Any]:
        """Translate a graph; return the flat operands of its output node."""
        values: dict[fx.Node, Any] = {} if results is None else results
        live = live_nodes(graph_module.graph)
        for node in graph_module.graph.nodes:
            if node.op == "output":
                leaves = torch.utils._pytree.tree_leaves(node.args[0])
                return [values.get(leaf) if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
            if node not in live:
                continue
            if node.op == "placeholder":
                values[node] = inputs.get(node.name)
            elif node.op == "get_attr":
                values[node] = self._attribute(graph_module, node)
            else:
                self._locate(node)
                values[node] = self._call(node, values)
        raise InternalError("a captured graph has no output node: please report this")

    def _locate(self, node: fx.Node) -> None:
        """Name and place what is made from now on after a node of the user's own model."""
        if "nn_module_stack" in node.meta:
            self.build.scope = scope_name(self.root, node)
        trace = node.meta.get("stack_trace")
        if trace:
            place = {STACK_TRACE: trace, OPERATOR_KEY: whole_operator(node)}
            self.build.metadata = place | fusion_mark(node)

    def _attribute(self, graph_module: fx.GraphModule, node: fx.Node) -> Any:
        content: Any = graph_module
        for step in str(node.target).split("."):
            content = getattr(content, step)
        return self._constant(content) if isinstance(content, torch.Tensor) else content

    def _constant(self, tensor: torch.Tensor) -> ir.Value:
        # By identity first: the builder's pool would look at all bytes again.
        if id(tensor) not in self.constants:
            self.constants[id(tensor)] = constant(self.build, tensor)
        return self.constants[id(tensor)]

    def _call(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        """Translate one call; values of its results, a list if there are several."""
        if node.target is operator.getitem:
            return _read(node.args[0], values)[node.args[1]]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._inlined(node, values)
        if not isinstance(node.target, torch._ops.OpOverload):
            raise _refusal(node)
        operands = [_read(operand, values) for operand in _operands(node)]
        translation = find(*_qualified(node.target))
        pairs = self._is_complex(operands, node)
        if pairs:
            translation = complex_translation(_qualified(node.target)[1], translation)
        if translation is not None:
            return self._translated(translation, node, operands)
        custom = find_custom(*_qualified(node.target))
        if custom is not None:
            return self._custom(custom, node, operands, values)
        smaller = decomposed(node)
        if smaller is not None:
            return self._nested(smaller, node, values)
        # torch's exporter knows nothing of pairs.
        if pairs:
            raise _refusal(node)
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise refused(
                node,
                " draws random numbers, which a compiled graph cannot do outside dropout: draw them "
                "on the host and pass them as an input",
            )
        answer = borrowed(node, self.build, values)
        if answer is None:
            raise _refusal(node)
        return self._checked(answer, node)

    def _custom(
        self, custom: CustomRule, node: fx.Node, operands: list[Any], values: dict[fx.Node, Any]
    ) -> Any:
        """Write an operator by the rule that its user registered."""
        if node.target in self.decomposing:
            ways = ", ".join(map(str, self.decomposing))
            raise ModelError(
                f"it calls the operator itself, by way of {ways}: let it compute with others"
            )
        context = TranslationContext(self.build, _outcomes(node.meta.get("val")), str(node.target))
        self.decomposing.append(node.target)
        try:
            return custom_results(
                custom,
                node,
                context,
                _operands(node),
                operands,
                lambda smaller: self._nested(smaller, node, values),
            )
        finally:
            self.decomposing.pop()

    def _is_complex(self, operands: list[Any], node: fx.Node) -> bool:
        try:
            return is_complex(operands, _outcomes(node.meta.get("val")))
        except ModelError as error:
            raise refused(node, f": {error}") from error

    def _translated(self, translation: Translation, node: fx.Node, operands: list[Any]) -> Any:
        outcomes = _outcomes(node.meta.get("val"))
        _refuse_mixed(node, operands)
        context = Context(self.build, outcomes, str(node.target), _layout(node))
        try:
            answer = translation(context, *operands)
        except ModelError as error:
            raise refused(node, f": {error}") from error
        return self._checked(answer, node)

    def _checked(self, answer: Result, node: fx.Node) -> Any:
        """Compare what a translation made with what torch says that the operator returns."""
        outcomes = _outcomes(node.meta.get("val"))
        results = answer if isinstance(answer, list) else [answer]
        for index, (value, outcome) in enumerate(zip(results, outcomes, strict=False)):
            if value is None or outcome is None:
                continue
            dtype = outcome.dtype
            if isinstance(value, Complex):
                # Both parts have the same type and shape.
                value, dtype = value.real, REAL_TYPES[dtype]
            if (element(value), sizes(value)) != (dtype, outcome.shape):
                raise InternalError(
                    f"the translation of {node.target} made {element(value).name} "
                    f"{list(sizes(value))} of result {index}, which is {outcome.dtype.name} "
                    f"{list(outcome.shape)}: please report this"
                )
        if isinstance(node.meta.get("val"), tuple | list):
            return results
        return results[0]

    def _nested(self, smaller: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        """Translate the decomposition of an operator; its placeholders are the tensor operands."""
        operands = [_read(operand, values) for operand in node.all_input_nodes]
        names = [inner.name for inner in smaller.graph.nodes if inner.op == "placeholder"]
        answer = self.run(smaller, dict(zip(names, operands, strict=True)))
        return answer if isinstance(node.meta.get("val"), tuple | list) else answer[0]

    def _inlined(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        """Translate the graph that an operator without effect on values calls."""
        if str(node.target).startswith("auto_functionalized"):
            raise refused(
                node,
                f" is {node.args[0]}, which writes into its arguments: define the operator with "
                "mutates_args=(), and let it return new tensors",
            )
        operands = [_read(operand, values) for operand in node.args]
        graphs = [i for i, operand in enumerate(operands) if isinstance(operand, fx.GraphModule)]
        if node.target.name() not in _INLINED or len(graphs) != 1:  # type: ignore[union-attr]
            raise _refusal(node)
        inner = operands[graphs[0]]
        # A text is the name by which torch tells its graphs apart, and no operand.
        arguments = [v for v in operands[graphs[0] + 1 :] if not isinstance(v, str)]
        names = [inside.name for inside in inner.graph.nodes if inside.op == "placeholder"]
        return self.run(inner, dict(zip(names, arguments, strict=True)))


def constant(builder: GraphBuilder, tensor: torch.Tensor) -> ir.Value:
    """Return a torch tensor as a constant of a graph.

    Args:
        builder: The graph.
        tensor: A tensor of any dtype that ONNX has.

    Raises:
        InternalError: It has no content.
    """
    if isinstance(tensor, FakeTensor):
        if tensor.constant is None:
            raise InternalError("a constant without content was captured: please report this")
        tensor = tensor.constant
    # numpy knows neither torch's subclasses nor a conjugation that is only a flag.
    plain = tensor.detach().as_subclass(torch.Tensor).cpu().contiguous().resolve_conj()
    dtype = onnx_type(plain.dtype)
    # numpy has no bfloat16, and float32 holds all of its numbers.
    if plain.dtype == torch.bfloat16:
        return builder.constant(plain.float().numpy(), dtype)
    return builder.constant(plain.numpy(), dtype)


def live_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that the output depends on.

    Args:
        graph: Functional.
    """
    live: set[fx.Node] = set()
    pending = [node for node in graph.nodes if node.op == "output"]
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending += node.all_input_nodes
    return live


def _qualified(target: torch._ops.OpOverload) -> tuple[str, str, str]:
    namespace, _, name = target._schema.name.partition("::")
    return namespace, name, target._schema.overload_name or "default"


def _operands(node: fx.Node) -> list[Any]:
    """Return a node's operands in the order of the operator's schema, defaults filled in."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    operands: list[Any] = list(node.args)
    for argument in arguments[len(operands) :]:
        default = argument.default_value if argument.has_default_value() else None
        operands.append(node.kwargs.get(argument.name, default))
    return operands


def _read(operand: Any, values: Mapping[fx.Node, Any]) -> Any:
    return fx.node.map_arg(operand, lambda node: values[node]) if operand is not None else None


def _layout(node: fx.Node) -> Layout | None:
    """Return how a node's first operand lies in memory, if that matters."""
    # No other operator looks at memory.
    if "as_strided" not in str(node.target):
        return None
    tensor = node.args[0].meta["val"]  # type: ignore[union-attr]
    return Layout(tuple(map(int, tensor.stride())), int(tensor.storage_offset()))


def _outcomes(value: Any) -> tuple[ResultSpec | None, ...]:
    """Return the types and shapes of what torch says that an operator returns."""
    values = value if isinstance(value, tuple | list) else (value,)
    return tuple(
        ResultSpec(onnx_type(v.dtype), tuple(map(int, v.shape)))
        if isinstance(v, torch.Tensor)
        else None
        for v in values
    )


def _refuse_mixed(node: fx.Node, operands: list[Any]) -> None:
    """Refuse operands of several types where torch's kernels do, but not its tracing."""
    if _qualified(node.target)[1] not in _OF_ONE_TYPE:  # type: ignore[arg-type]
        return
    kinds = [element(operand) for operand in operands if isinstance(operand, ir.Value)]
    if len(set(kinds)) > 1:
        raise refused(
            node,
            f" is given {' and '.join(dict.fromkeys(kind.name for kind in kinds))}, which torch "
            "computes in one type only: convert the input, or the module, as in x.to(torch.float32) "
            "or model.float()",
        )


def _refusal(node: fx.Node) -> ModelError:
    target = node.target
    if "grouped_mm" in str(target):
        return refused(
            node,
            " has sizes that depend on values, and cannot be written in ONNX: let all experts compute, with "
            "set_experts_implementation('batched_mm') of the model of transformers",
        )
    if isinstance(target, torch._ops.OpOverload) and target.namespace not in _TORCHS_OWN:
        return refused(
            node,
            " has no translation: register one, with "
            f"@samba_onnx.translations.translates({target._schema.name!r}), in the program or in a "
            "file that --translations names",
        )
    return refused(
        node,
        " cannot be written in ONNX: compute it with other operators, or outside of the module",
    )
