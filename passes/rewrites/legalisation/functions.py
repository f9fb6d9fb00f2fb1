"""Operators that ONNX defines by others, where a target has the operator but refuses a node of it.

Evidence: what ONNX's own definition is made of. An operator that a target does not know at all is written so before
rules are looked at, where the target has all of it; here the definition may need other rules.
"""

from __future__ import annotations

from typing import Any, Final

import onnx
import onnx_ir as ir

from samba_onnx.passes.rewrites.bodies import Values, copy_nodes
from samba_onnx.passes.rewrites.expand_functions import function_of
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.legalisation.rules import legalises

_LEFT = frozenset({"Bernoulli", "SequenceMap"})
"""Operators that are left out: one draws random numbers, the other maps sequences."""


def _is_defined(schema: Any) -> bool:
    """Return whether ONNX defines an operator by others; onnx's stubs lack what a schema says of that."""
    return bool(schema.has_function or schema.has_context_dependent_function)


# From the installed onnx and not from a list: every release defines more operators by others.
DEFINED = tuple(
    sorted(
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if schema.domain == "" and schema.name not in _LEFT and _is_defined(schema)
    )
)
"""Operators of the default domain that ONNX defines by others."""


DEFINITION: Final = "definition"
"""Name of the rule that writes an operator by what ONNX defines it to be."""


@legalises(
    *DEFINED,
    name=DEFINITION,
    makes="what ONNX's own definition of the operator is made of",
    needs="a definition for its version and types that computes what runtimes do, of operators that the target has or other rules write",
    numbers="those of the definition",
)
def definition(draft: Draft) -> list[ir.Value | None]:
    """Write a node by ONNX's definition of its operator."""
    owner = draft.node.graph
    # ONNX may define the body differently by version and by the types of operands.
    version = 0 if owner is None else owner.opset_imports.get("", 0)
    function = function_of(draft.node, version)
    if function is None:
        raise CannotExpandError("ONNX defines no body for it, its version and its types")
    # Inputs that the node leaves out at the end are missing in its list, but not in the function's.
    operands = [*draft.node.inputs, *[None] * (len(function.inputs) - len(draft.node.inputs))]
    values: Values = dict(zip(function.inputs, operands, strict=False))
    # One without a default that the node leaves out is none: what refers to it leaves it out, too.
    defaults = {
        name: item
        for name, item in function.attributes.items()
        if item.type != ir.AttributeType.UNDEFINED
    }
    # Attributes of the node go last, since they overrule defaults.
    attributes = {**defaults, **draft.node.attributes}
    copy_nodes(draft, function, values, attributes)
    results = [values.get(value) for value in function.outputs]
    return results[: len(draft.node.outputs)]
