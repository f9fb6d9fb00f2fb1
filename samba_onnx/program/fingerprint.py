"""What a program looks like, in few bytes, so that a PEF is run for no other model."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from samba_onnx.errors import PefFormatError
from samba_onnx.program.dataflow import name_of
from samba_onnx.program.program import Part, Program

# A few kilobytes can expand to gigabytes, and a PEF may come from anybody.
_LONGEST = 1 << 26
"""Bytes that a stored fingerprint may expand to."""
_SAMPLES = 1 << 20
"""Bytes of a constant that are looked at."""


@dataclass(frozen=True)
class Fingerprint:
    """A program, line by line."""

    interface: tuple[str, ...]
    """Inputs, residents, argins and outputs, in full."""
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    """Section type of every part, and a line per node: the operator, and a digest of the rest."""

    def text(self) -> str:
        """Return it as text, for a PEF."""
        content = json.dumps([self.interface, self.parts], separators=(",", ":"))
        return base64.b85encode(zlib.compress(content.encode(), 9)).decode()

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Read what ``text`` wrote.

        Args:
            text: From a PEF.

        Raises:
            PefFormatError: It is nothing of the kind.
        """
        try:
            expanding = zlib.decompressobj()
            content = expanding.decompress(base64.b85decode(text), _LONGEST)
            # Content that goes on beyond the limit does not end, and counts as none.
            interface, parts = json.loads(content if expanding.eof else b"")
            return cls(
                tuple(map(str, interface)),
                tuple((str(kind), tuple(map(str, lines))) for kind, lines in parts),
            )
        except (ValueError, TypeError, zlib.error) as error:
            raise PefFormatError(
                f"the PEF's record of its model cannot be read ({error}); compile it again"
            ) from None


def fingerprint(program: Program) -> Fingerprint:
    """Return what a program looks like.

    Args:
        program: Before it is compiled. Names of intermediate values and source lines do not count.

    Returns:
        Equal for programs that compute the same by the same nodes.
    """
    public = {*program.outputs, *program.residents}
    passed: dict[str, str] = {}
    parts = tuple(
        (part.type.value, tuple(graph_lines(part.model.graph, public, passed)))
        for part in program.parts
    )
    return Fingerprint(tuple(_interface(program)), parts)


def difference(compiled: Fingerprint, traced: Fingerprint) -> str:
    """Say where two programs differ first.

    Args:
        compiled: The program of a PEF.
        traced: The one that is to run. Parts that only the PEF has do not count: a model that was
            compiled with optimizers may run without.

    Returns:
        A clause for a message; empty when they agree.
    """
    types = {kind for kind, _ in traced.parts}
    # Without optimizers the traced program lacks residents, too, so that its interface is shorter
    # for a good reason.
    is_whole = len(traced.parts) == len(compiled.parts)
    texts = _first(compiled.interface, traced.interface) if is_whole else ""
    if texts:
        return texts
    parts = [(kind, lines) for kind, lines in compiled.parts if kind in types]
    if [kind for kind, _ in parts] != [kind for kind, _ in traced.parts]:
        had = ", ".join(kind for kind, _ in compiled.parts)
        wants = ", ".join(kind for kind, _ in traced.parts)
        return f"the PEF has parts {had}; the model has {wants}"
    for (kind, one), (_, other) in zip(parts, traced.parts, strict=True):
        clause = _first_node(kind, one, other)
        if clause:
            return clause
    return ""


def _first(compiled: Sequence[str], traced: Sequence[str]) -> str:
    for line, other in zip(compiled, traced, strict=False):
        if line != other:
            return f"the PEF has {line}; the model has {other}"
    if len(compiled) == len(traced):
        return ""
    longer = max(compiled, traced, key=len)
    missing = longer[min(len(compiled), len(traced))]
    owner = "PEF" if longer is compiled else "model"
    return f"only the {owner} has {missing}"


def _first_node(kind: str, compiled: Sequence[str], traced: Sequence[str]) -> str:
    for index, (line, other) in enumerate(zip(compiled, traced, strict=False)):
        if line != other:
            # The digest behind the colon tells nothing to people.
            had, wants = line.rpartition(":")[0], other.rpartition(":")[0]
            detail = f"the PEF has {had}, the model {wants}"
            if had == wants:
                detail = f"both have {had}, with other operands, attributes or shapes"
            return f"node {index} of {kind}: {detail}"
    if len(compiled) != len(traced):
        return f"the PEF has {len(compiled)} nodes of {kind}, the model {len(traced)}"
    return ""


def _interface(program: Program) -> Iterator[str]:
    kinds = _types(program.parts)
    for name in program.inputs:
        yield f"input {name!r} {kinds.get(name, 'unused')}"
    for name, kind in program.residents.items():
        yield f"{kind.value} {name!r} {kinds.get(name, 'unused')}"
    for argin in program.argins:
        yield f"argin {argin.name!r} {argin.type}"
    for name in program.outputs:
        yield f"output {name!r} {kinds.get(name, 'unused')}"


def _types(parts: Iterable[Part]) -> dict[str, str]:
    return {
        name_of(value): value_type(value)
        for part in parts
        for value in (*part.model.graph.inputs, *part.model.graph.outputs)
    }


def value_type(value: ir.Value | None) -> str:
    """Return type and shape of a value as text.

    Args:
        value: Any; None stands for one that is left out.
    """
    if value is None:
        return "-"
    dtype = "?" if value.dtype is None else value.dtype.name.lower()
    shape = "?" if value.shape is None else ", ".join(map(str, value.shape))
    return f"{dtype}[{shape}]"


def graph_lines(
    graph: ir.Graph,
    public: Collection[str] | None = None,
    passed: dict[str, str] | None = None,
) -> Iterator[str]:
    """Yield a line per node.

    Args:
        graph: Any; names of values between nodes do not count.
        public: Outputs whose names count; all when None.
        passed: What stands for inputs whose names do not count, by name; the graph's other outputs
            are added.

    Yields:
        The operator, and a digest of operands, attributes and shapes; in an order that follows
        from what outputs depend on, whatever the order in which the nodes were written.
    """
    passed = {} if passed is None else passed
    # Values by what they are computed from: names of those between nodes may change.
    places = {value: passed.get(name_of(value), f"in {value.name}") for value in graph.inputs}
    for value in graph.initializers.values():
        places[value] = f"constant {_digest_tensor(value.const_value)}"
    lines = {}
    for node in graph:
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        operands = [places.get(v, "-") if v is not None else "-" for v in node.inputs]
        attributes = [f"{name}={_attribute(a)}" for name, a in sorted(node.attributes.items())]
        results = [value_type(value) for value in node.outputs]
        lines[node] = f"{operator}:{_digest(repr((operands, attributes, results)))}"
        for position, value in enumerate(node.outputs):
            places[value] = f"{lines[node]}.{position}"
    named = [value for value in graph.outputs if public is None or value.name in public]
    others = [value for value in graph.outputs if not (public is None or value.name in public)]
    # Outputs without public names are ordered by what they are computed from, as their names may
    # change.
    others.sort(key=lambda value: places.get(value, "-"))
    passed |= {name_of(value): places.get(value, "-") for value in others}
    yield from (lines[node] for node in _ordered(graph, [*named, *others]))
    # The outputs are a line of their own, for nodes that agree may be returned in another order.
    ends = [(value.name, places.get(value, "-")) for value in named]
    yield f"outputs:{_digest(repr((ends, [places.get(value, '-') for value in others])))}"


def _ordered(graph: ir.Graph, outputs: Sequence[ir.Value]) -> Iterator[ir.Node]:
    """Iterate over nodes, operands first: those of the first output, then of the second, ..."""
    seen: set[ir.Node] = set()
    pending = [value.producer() for value in reversed(outputs)]
    while pending:
        node = pending[-1]
        if node is None or node in seen:
            pending.pop()
            continue
        makers = [v.producer() for v in reversed(node.inputs) if v is not None]
        missing = [maker for maker in makers if maker is not None and maker not in seen]
        if missing:
            pending += missing
            continue
        seen.add(node)
        yield node
    # Nodes that no output depends on come last, in the order of the graph.
    yield from (node for node in graph if node not in seen)


def _attribute(attribute: ir.Attr) -> str:
    if isinstance(attribute.value, ir.TensorProtocol):
        return _digest_tensor(attribute.value)
    return repr(attribute.value)


def _digest_tensor(tensor: ir.TensorProtocol | None) -> str:
    if tensor is None:
        return "-"
    # Texts have no bytes of fixed size.
    if tensor.dtype == ir.DataType.STRING:
        content = repr(tensor.numpy().tolist()).encode()
    else:
        content = _sampled(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8))
    text = f"{tensor.dtype} {tensor.shape} {hashlib.sha256(content).hexdigest()}"
    return _digest(text)


def _sampled(content: npt.NDArray[np.uint8]) -> bytes:
    """Return the bytes of a tensor; of a large one only some, evenly spread."""
    # Odd, so that it does not meet the same byte of every element.
    step = content.size // _SAMPLES | 1
    return content[::step].tobytes() if step > 1 else content.tobytes()


def _digest(text: str) -> str:
    # 48 bits: enough to tell models apart by accident, and a PEF keeps one for every node.
    return hashlib.sha256(text.encode()).hexdigest()[:12]
