"""Finds for one node the nodes that may take its place: written, simplified and checked apart from the model.

A node is copied into a model of its own, a rule writes what it computes, constants are folded, types are
inferred, and what the target still refuses is written by further rules. The model is not touched before all
of it is known to run on the target.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import onnx_ir as ir

from samba_onnx.passes.rewrites.bodies import MOST_NODES
from samba_onnx.passes.rewrites.convert_opset import ConvertOpsetPass
from samba_onnx.passes.rewrites.fold_constants import FoldConstantsPass
from samba_onnx.passes.rewrites.fold_shapes import FoldShapesPass
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft, own_outputs
from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.inline_branches import InlineBranchesPass
from samba_onnx.passes.rewrites.legalisation.proofs import NARROW, inner_narrowings, useful_webs
from samba_onnx.passes.rewrites.legalisation.rules import rule_for
from samba_onnx.passes.rewrites.legalisation.webs import narrow
from samba_onnx.passes.rewrites.lift_constants import LiftConstantsPass
from samba_onnx.passes.rewrites.loop_steps import is_short
from samba_onnx.passes.rewrites.refusals import Refusal
from samba_onnx.passes.rewrites.remove_noops import RemoveNoopsPass
from samba_onnx.passes.rewrites.remove_unused_nodes import RemoveUnusedNodesPass
from samba_onnx.passes.rewrites.rewriting import constant, is_operator, replace_node
from samba_onnx.passes.rewrites.simplify_concats import SimplifyConcatsPass
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from samba_onnx.program.bounds import Bounds
from samba_onnx.program.dataflow import name_of, reads, subgraphs
from samba_onnx.program.intervals import Interval

# Enough for a definition whose parts have definitions and rules of their own; rules that call for
# each other would go on for ever.
DEEPEST = 4
"""Rules that are applied to results of rules, at most."""
# Older sets state axes as attributes: each rule would have to be written twice.
OLDEST = 18
"""Oldest version of the default operator set that the rules write for: axes of reductions are inputs."""
# Folding may make a branch constant, and inlining it may make more foldable; rounds end the turn,
# should passes undo each other.
_ROUNDS = 4
# Elements up to which a constant is compared by its content; larger ones are compared as objects.
_KEY_ELEMENTS = 64


class Refused(Protocol):
    """The answer of a target about a node."""

    @property
    def reason(self) -> Explained | None:
        """Why the node cannot run on the RDU; None if it can."""


class Explained(Protocol):
    """Why a target refuses a node, in words."""

    @property
    def message(self) -> str:
        """The reason as one sentence."""


class Supports(Protocol):
    """A target, as far as legalisation asks it."""

    def support(self, node: ir.Node) -> Refused:
        """Decide whether a node can run on the RDU."""


@dataclass(frozen=True)
class LegalForm:
    """Nodes that may take the place of a node, all of which the target runs."""

    rule: str
    """Name of the rule that wrote it."""
    graph: ir.Graph
    """Inputs are what the node reads of computed values, outputs are its outputs that somebody reads."""
    operands: Mapping[str, int]
    """Initializers that are constant operands of the node, by name with their places among these; all others
    are new."""


@dataclass
class FormFinder:
    """Finds legal forms of nodes, each kind of node once."""

    target: Supports
    excluded: frozenset[str] = frozenset()
    """Names of rules that are not to be used."""
    rounds_float64: bool = False
    """Whether the user lets float64 be computed in float32 where the numbers are rounded by that."""
    bounds: Bounds = field(default_factory=Bounds)
    """Ranges of the values of the graph whose nodes are asked about."""
    _known: dict[Hashable, LegalForm | Refusal] = field(default_factory=dict)

    def find(self, node: ir.Node) -> LegalForm | Refusal:
        """Return what may take the place of a node, or why nothing does.

        Args:
            node: A node of a graph, with inferred types, that the target refuses.
        """
        # Models repeat layers: nodes that agree in all that a form depends on share one, and rules
        # are applied once.
        key = _key(node, self.bounds)
        if key is None:
            return self._find(node)
        if key not in self._known:
            self._known[key] = self._find(node)
        return self._known[key]

    def _find(self, node: ir.Node) -> LegalForm | Refusal:
        rule = rule_for(node, self.excluded)
        if rule is None:
            return Refusal("no rule writes it with other operators")
        version = 0 if node.graph is None else node.graph.opset_imports.get("", 0)
        if version < OLDEST:
            return Refusal(f"the model keeps opset {version}, and rules write for {OLDEST}")
        # Apart from the model, so that a rule may give up at any point and nothing has to be
        # undone.
        model, operands = _alone(node)
        own = [value for value in reads(node) if constant(value) is None]
        known = {
            copy: self.bounds.of(value) for copy, value in zip(model.graph.inputs, own, strict=True)
        }
        pending = list(model.graph)
        for _ in range(DEEPEST):
            for inner in pending:
                refusal = self._legalise(inner, known)
                if refusal is not None:
                    return refusal
            # Before passes look at the copy, whose time grows with its nodes.
            if len(model.graph) > MOST_NODES:
                return Refusal(
                    f"it would become {len(model.graph):,} nodes, more than {MOST_NODES:,}"
                )
            _simplify(model)
            pending = self._narrowed(model, known)
            if not pending:
                left = model.graph.initializers.values()
                places = {name_of(v): at for at, v in enumerate(operands) if v in left}
                return LegalForm(rule.name, model.graph, places)
        reason = self.target.support(pending[0]).reason
        return Refusal(f"rules would have to be applied too often: {reason and reason.message}")

    def _narrowed(self, model: ir.Model, known: Mapping[ir.Value, Interval]) -> list[ir.Node]:
        """Let places that rules wrote be int32 where the target lacks int64; return what it still refuses."""
        refused = self._refused(model)
        if not refused or NARROW in self.excluded:
            return refused
        # Only webs inside of the form: its inputs and outputs keep their types, for others read and
        # write them.
        kinds = inner_narrowings(known)
        useful = useful_webs(model.graph, kinds, refused, self.target, self.excluded)
        for web in useful:
            narrow(model, web)
        if useful:
            _simplify(model)
        return self._refused(model)

    def _refused(self, model: ir.Model) -> list[ir.Node]:
        """Return the nodes of the copy that are not yet as the target runs them.

        Short Scans are among them, which become their steps in any case.
        """
        return [node for node in model.graph if self._is_short_scan(node) or not self._runs(node)]

    def _runs(self, node: ir.Node) -> bool:
        return self.target.support(node).reason is None

    def _is_short_scan(self, node: ir.Node) -> bool:
        if not is_operator(node, "Scan") or rule_for(node, self.excluded) is None:
            return False
        return is_short(node)

    def _legalise(self, node: ir.Node, known: Mapping[ir.Value, Interval]) -> Refusal | None:
        """Let rules write a node of the copy, or the nodes in the body of a Scan that it refuses for these."""
        # A long Scan may stay one, of which the body is made of what the target has.
        if is_operator(node, "Scan") and not self._is_short_scan(node):
            body = node.attributes["body"].as_graph()
            refused = [inner for inner in body if not self._runs(inner)]
            # As a body where every node of it can be written; else as steps, of which more is constant.
            if refused and not any(self._write(inner, {}) for inner in refused):
                return None
        return self._write(node, known)

    def _write(self, node: ir.Node, known: Mapping[ir.Value, Interval]) -> Refusal | None:
        """Let a rule write a node of the copy."""
        rule = rule_for(node, self.excluded)
        if rule is None:
            reason = self.target.support(node).reason
            return Refusal(f"it would need what the target lacks: {reason and reason.message}")
        draft = Draft(node, known)
        try:
            results = rule.draft(draft)
        except CannotExpandError as error:
            return Refusal(str(error))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A model may say anything: operands of a wrong rank or number contradict its operator.
            return Refusal(f"what it states contradicts its operator: {error or repr(error)}")
        outputs = own_outputs(draft, [results] if isinstance(results, ir.Value) else results)
        # A rule may leave out outputs, such as a mask, that it cannot compute; only those that
        # somebody reads matter.
        lost = [at for at, value in enumerate(outputs) if value is None and draft.is_read(at)]
        if lost:
            return Refusal(f"its output {lost[0]} is not computed by the rule")
        replace_node(node, draft.nodes, outputs)
        return None


def _alone(node: ir.Node) -> tuple[ir.Model, list[ir.Value]]:
    """Return a model of a copy of one node, and the constants that it reads."""
    graph = node.graph
    assert graph is not None
    operands = reads(node)
    constants = [value for value in operands if constant(value) is not None]
    inputs = [value for value in operands if constant(value) is None]
    # Outputs that nobody reads are left out of the copy, so that rules need not compute them.
    outputs = [value for value in node.outputs if value.uses() or value.is_graph_output()]
    view = ir.GraphView(
        inputs,
        outputs,
        nodes=[node],
        initializers=constants,
        opset_imports=dict(graph.opset_imports),
        name="one_node",
    )
    copy = view.clone()
    # IR version 10 has all types that the rules write, whatever version the user's model is of.
    return ir.Model(copy, ir_version=10), list(copy.initializers.values())


def _simplify(model: ir.Model) -> None:
    """Fold constants of what a rule wrote, infer its types, and remove what nobody reads."""
    for _ in range(_ROUNDS):
        passes = [
            LiftConstantsPass(),
            ConvertOpsetPass(model.graph.opset_imports[""]),  # bodies may be of another version
            InferShapesPass(),
            FoldShapesPass(),
            FoldConstantsPass(),
            InlineBranchesPass(),
            UnpackSequencesPass(),
            SimplifyConcatsPass(),
            RemoveNoopsPass(),
        ]
        changes = [bool(rewrite(model).modified) for rewrite in passes]
        if not any(changes):
            break
    # Once at the end, since what folding leaves unread costs nothing until then.
    RemoveUnusedNodesPass()(model)


def _key(node: ir.Node, bounds: Bounds) -> Hashable | None:
    """Return a key of all that the legal form of a node depends on; None for a node with subgraphs."""
    # A body may read any value of the graph, so that no short key tells what it depends on.
    if next(subgraphs(node), None) is not None:
        return None
    # Operands are numbered in the order of their first use: Mul(x, x) has another form than Mul(x,
    # y).
    seen: dict[ir.Value | None, int] = {None: -1}
    operands = [
        (seen.setdefault(value, len(seen)), *_about(value, bounds)) for value in node.inputs
    ]
    outputs = [
        (str(value.type), str(value.shape), bool(value.uses()) or value.is_graph_output())
        for value in node.outputs
    ]
    attributes = sorted((name, str(item.value)) for name, item in node.attributes.items())
    tensors = [i.value for i in node.attributes.values() if i.type == ir.AttributeType.TENSOR]
    return (node.op_type, node.version, *operands, *outputs, *attributes, *tensors)


def _about(value: ir.Value | None, bounds: Bounds) -> Iterator[Hashable]:
    """Yield type, shape, range and content of an operand, as far as rules may look at them."""
    if value is None:
        return
    yield str(value.type)
    yield str(value.shape)
    tensor = constant(value)
    # Rules for integers look at ranges, as of indices and divisors.
    if tensor is None and value.dtype is not None and value.dtype.is_integer():
        yield bounds.of(value)
    if tensor is not None:
        small = tensor.size <= _KEY_ELEMENTS and not tensor.dtype.is_string()
        # A large one is known by itself, and the key keeps it: its id would be that of another once it is gone.
        yield tensor.numpy().tobytes() if small else cast(Hashable, tensor)
