from __future__ import annotations

from samba_onnx.passes.rewrites.bodies import copy_nodes
from samba_onnx.passes.rewrites.foreign.drafting import Draft
from tests.passes.rewrites.applying import TRACE, parse


def test_a_copy_is_called_as_its_node_with_what_it_says_of_itself() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    (node,) = model.graph
    node.name, node.version, node.overload = "n", 13, "second"
    draft = Draft(node)
    copy_nodes(draft, [node], {}, suffix="_1")
    copy_nodes(draft, [node], {})
    named, plain = draft.nodes
    assert (named.name, named.outputs[0].name) == ("n_1", "y_1")
    assert (plain.name, plain.outputs[0].name) == (None, None)
    for copy in draft.nodes:
        assert (copy.version, copy.overload) == (13, "second")
        assert copy.metadata_props[TRACE] == node.metadata_props[TRACE]
        assert copy.metadata_props is not node.metadata_props
        assert copy.outputs[0].type == node.outputs[0].type
