"""Compute in bfloat16 what a model computes in float32, in the operators that a precision names."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import onnx
import onnx_ir as ir

from samba_onnx.facts.domains import is_default
from samba_onnx.facts.families import FLOAT_PRODUCTS, SIZES
from samba_onnx.facts.names import FreeNames
from samba_onnx.facts.operators import operators
from samba_onnx.facts.precisions import (
    CONTROL,
    CONVERSION,
    CUSTOM,
    INTEGERS,
    NO_FORM,
    NO_PRODUCT,
    Precision,
    write_precision,
)
from samba_onnx.facts.versions import NEWEST_OPSET
from samba_onnx.passes.rewrites.float_twins import OF_INTEGERS
from samba_onnx.passes.rewrites.product_biases import fold_biases
from samba_onnx.passes.rewrites.rewriting import (
    WEIGHT,
    add_initializer,
    constant,
    converted,
    each_graph,
    inherit,
    is_operator,
)

__all__ = ["ReducePrecisionPass"]

_WIDE: Final = ir.DataType.FLOAT
_NARROW: Final = ir.DataType.BFLOAT16
_CARRYING: Final = operators(exact_in_bfloat16=True)
"""Operators whose results are bfloat16 if their operands are."""
_OLDEST: Final = 13
"""Version of the default operator set from which operators have bfloat16."""


class ReducePrecisionPass(ir.passes.InPlacePass):
    """Give values and weights of float32 the type bfloat16, and keep the model's interface.

    1. Inputs and outputs of the model keep float32: a Cast stands behind each input, and before each
       output.
    2. ``mixed``: matrix products and convolutions compute in bfloat16, and so do operators that only
       move or choose numbers which are bfloat16 already. All others compute in float32.
    3. ``bf16``: all compute in bfloat16. What the model itself converts to float32, by a Cast, stays so
       through further operators, up to a matrix product that also reads bfloat16.
       ``bf16-throughout`` disregards these Casts.
    4. Weights that are read in bfloat16 only are stored so; they are converted when they are written, one
       in memory at a time.
    5. A product and the bias that is added to it become one operator, which rounds once.
    6. Operators of custom domains, operators with graphs inside, and operators without bfloat16 in ONNX
       compute in float32.
    7. Nodes that stand for an operator whose results are integers compute in float32, too: integers are exact,
       whatever the precision.
    """

    def __init__(self, precision: Precision) -> None:
        """Take the precision, which names the operators that compute in bfloat16.

        Args:
            precision: Which operators; ``fp32`` leaves every model as it is.
        """
        super().__init__()
        self.precision = precision
        self.notes: list[str] = []
        self.metadata: dict[str, str] = {}

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Reduce the precision, if the model has any float32."""
        opset = model.graph.opset_imports.get("", _OLDEST)
        if self.precision.is_own:
            return ir.passes.PassResult(model, modified=False)
        # The body of a function would keep float32 while its callers change.
        if opset < _OLDEST or model.functions:
            what = "calls functions" if model.functions else f"is of operator set {opset}"
            self.notes.append(f"precision {self.precision} is not applied: the model {what}")
            return ir.passes.PassResult(model, modified=False)
        fold_biases(model)  # Case 5.
        choice = _Choice(self.precision)
        # In topological order, so that what an operator's operands became is known when it is its
        # turn.
        for node in model.graph:
            choice.take(node)
        _Retyping(model, choice).apply()
        self.metadata = write_precision(self.precision, choice.wide, idle=not choice.narrow)
        return ir.passes.PassResult(model, modified=True)


@dataclass
class _Choice:
    """Which nodes compute in bfloat16; nodes are taken in topological order."""

    precision: Precision
    narrow: set[ir.Node] = field(default_factory=set)
    wide: dict[str, Counter[str]] = field(default_factory=dict)
    """Operators that compute in float32, with how often they do, by the reason."""
    _kept: set[ir.Value] = field(default_factory=set)

    def take(self, node: ir.Node) -> None:
        """Decide whether a node computes in bfloat16; nodes before it were asked already."""
        if not any(map(_is_wide, (*node.inputs, *node.outputs))) or _reads_sizes(node):
            return
        reason = self._reason(node)
        if reason is None:
            self.narrow.add(node)
            return
        # Results that stay float32 for a reason pass this on to what reads them (case 3).
        if reason in (CONVERSION, CONTROL, CUSTOM, INTEGERS):
            self._kept.update(filter(_is_wide, node.outputs))
        if reason:
            self.wide.setdefault(reason, Counter())[node.op_type] += 1

    def _reason(self, node: ir.Node) -> str | None:
        """Return why a node computes in float32; empty if there is nothing to say, None if it does not."""
        operands = [value for value in node.inputs if value is not None and _is_wide(value)]
        computed = [value for value in operands if constant(value) is None]
        # Case 6.
        if not is_default(node.domain):
            return CUSTOM
        # Case 7.
        if OF_INTEGERS in node.meta:
            return INTEGERS
        if any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
            return CONTROL
        if is_operator(node, "Cast", "CastLike") and _is_wide(node.outputs[0]):
            return CONVERSION if self.precision is Precision.BF16 else ""
        # Without operands of float32 there is nothing to convert: a constant, or a Cast from
        # integers.
        if not operands:
            return ""
        if not _has_form(node):
            return NO_FORM
        if self.precision is Precision.MIXED:
            # An operator that only moves numbers follows its operands; a Cast before it would save
            # nothing.
            producers = {value.producer() for value in computed}
            if node.op_type in _CARRYING and producers and producers <= self.narrow:
                return None
            if node.op_type in _CARRYING:
                return ""
            return None if node.op_type in FLOAT_PRODUCTS else NO_PRODUCT
        kept = [value for value in operands if value in self._kept]
        if not kept or self.precision is Precision.BF16_THROUGHOUT:
            return None
        # A matrix product that reads a value of bfloat16 too takes all of them so.
        mixes = len(kept) < len(computed)
        return None if mixes and node.op_type in FLOAT_PRODUCTS else CONVERSION


_GRAPHS: Final = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


@dataclass
class _Retyping:
    """Changes the types of the values in one model by what was chosen for its nodes."""

    model: ir.Model
    choice: _Choice
    _names: FreeNames = field(init=False)
    """Names of the model's values, which no other value may take: whoever compares goes by them."""

    def __post_init__(self) -> None:
        graphs = each_graph(self.model)
        values = (value for graph in graphs for value in _all_values(graph))
        self._names = FreeNames(value.name for value in values if value.name)

    def apply(self) -> None:
        """Give every value the type in which it is computed, and every node operands of its types."""
        narrow = {
            value
            for node in self.choice.narrow
            for place, value in enumerate(node.outputs)
            if _is_wide(value) and _takes(node, place, outputs=True)
        }
        values = list(_values(self.model.graph))
        # Uses are remembered before any Cast is put in, which would be one of them.
        uses = {value: list(value.uses()) for value in values}
        outputs = [value for value in dict.fromkeys(self.model.graph.outputs) if value in narrow]
        for value in narrow:
            _set_type(value)
        for value in values:
            others = [use for use in uses[value] if self._reads_narrow(*use) != (value in narrow)]
            others = [use for use in others if not _reads_sizes(use[0])]
            if value in narrow:
                self._widen(value, others)
            elif others and not self._store(value, others, all_=len(others) == len(uses[value])):
                self._convert(value, others, _NARROW)
        for value in outputs:
            self._cast_output(value)

    def _reads_narrow(self, node: ir.Node, place: int) -> bool:
        return node in self.choice.narrow and _takes(node, place)

    def _widen(self, value: ir.Value, uses: Sequence[tuple[ir.Node, int]]) -> None:
        """Let others read a value of bfloat16 in float32; graphs inside of nodes are among them."""
        returned = [
            (graph, place)
            for graph in self.model.graph.subgraphs()
            for place, output in enumerate(graph.outputs)
            if output is value
        ]
        if not uses and not returned:
            return
        wide = self._convert(value, uses, _WIDE)
        for graph, place in returned:
            graph.outputs[place] = wide

    def _store(self, value: ir.Value, uses: Sequence[tuple[ir.Node, int]], *, all_: bool) -> bool:
        """Store a weight in bfloat16, once more where others read it in float32; False for no weight."""
        tensor = constant(value)
        if tensor is None:
            return False
        narrow = converted(tensor, _NARROW)
        # A weight that is an output of the model keeps the type of the interface.
        if all_ and not value.is_graph_output():
            value.const_value = narrow
            _set_type(value)
            return True
        is_weight = bool(value.meta.get(WEIGHT))
        name = self._names.take(f"{value.name}_bfloat16")
        twin = add_initializer(self.model, name, narrow, weight=is_weight)
        for node, place in uses:
            node.replace_input_with(place, twin)
        return True

    def _convert(
        self, value: ir.Value, uses: Sequence[tuple[ir.Node, int]], dtype: ir.DataType
    ) -> ir.Value:
        """Put a Cast behind a value, and let nodes read its result."""
        cast = self._cast(value, dtype)
        producer, graph = value.producer(), self.model.graph
        inherit([cast], producer or (uses[0][0] if uses else cast))
        if producer is not None:
            graph.insert_after(producer, cast)
        else:
            graph.insert_before(graph[0], cast)
        for node, place in uses:
            node.replace_input_with(place, cast.outputs[0])
        return cast.outputs[0]

    def _cast_output(self, value: ir.Value) -> None:
        """Return float32 in the place of a value that is bfloat16 now, under its name."""
        graph, name = self.model.graph, value.name
        cast = self._cast(value, _WIDE)
        producer = value.producer()
        assert producer is not None
        inherit([cast], producer)
        result = cast.outputs[0]
        for place, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[place] = result
        result.doc_string = value.doc_string
        result.metadata_props.update(value.metadata_props)
        # The Cast's result has the output's name, so that callers see nothing of it.
        value.name, result.name = self._names.take(f"{name}_bfloat16"), name
        graph.append(cast)

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Node:
        cast = ir.node("Cast", [value], {"to": int(dtype)})
        suffix = "float32" if dtype is _WIDE else "bfloat16"
        cast.outputs[0].name = self._names.take(f"{value.name}_{suffix}")
        cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(dtype), value.shape
        return cast


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield each float32 value of a graph once, without those of its subgraphs."""
    yield from (value for value in dict.fromkeys(_all_values(graph)) if _is_wide(value))


def _all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from (*graph.inputs, *graph.initializers.values())
    yield from (output for node in graph for output in node.outputs)


def _is_wide(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == _WIDE and isinstance(value.type, ir.TensorType)


def _reads_sizes(node: ir.Node) -> bool:
    return is_operator(node, *SIZES)


def _set_type(value: ir.Value) -> None:
    value.type = copy.deepcopy(value.type)  # types are shared between values
    value.dtype = _NARROW


def _takes(node: ir.Node, place: int, *, outputs: bool = False) -> bool:
    """Return whether an operand, or a result, of a node may be bfloat16.

    Types are those of the newest version of the operator: what torch exports has them as well, and the
    target's table, not ONNX's, says what the RDU computes in.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, NEWEST_OPSET, "")
    except onnx.defs.SchemaError:
        return False
    formals = schema.outputs if outputs else schema.inputs
    formal = formals[min(place, len(formals) - 1)]
    return "tensor(bfloat16)" in formal.types


def _has_form(node: ir.Node) -> bool:
    """Return whether the first operand of float32 and all results of that type may be bfloat16."""
    # By the first operand: further ones, as scales, may have types of their own.
    first = next((place for place, value in enumerate(node.inputs) if _is_wide(value)), 0)
    results = [place for place, value in enumerate(node.outputs) if _is_wide(value)]
    return _takes(node, first) and all(_takes(node, place, outputs=True) for place in results)
