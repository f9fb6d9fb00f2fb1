from __future__ import annotations

import numpy as np

from samba_onnx.passes.rewrites.fix_names import FixNamesPass
from tests.passes.rewrites.applying import check, numbers, parse

GRAPH = """g (bool c, float[2] x) => (float[2] y) {
 r = Relu(x)
 m, i = TopK(r, k)
 y = If (c) <then_branch = t () => (float[2] a) { h = Neg(r)
 a = Abs(h) }, else_branch = e () => (float[2] a) { h = Exp(r)
 a = Abs(h) }> }""".replace(" {\n r", " <int64[1] k = {1}> {\n r", 1)


def test_names_are_unique_over_graph_and_branches() -> None:
    model = parse(GRAPH)
    for node in model.graph:
        node.name = "same"
    model.graph[1].outputs[0].name = "x"
    model.graph.outputs[0].name = "y"
    before = parse(GRAPH)
    FixNamesPass()(model)
    values = [v.name for n in model.graph.all_nodes() for v in n.outputs]
    values += [v.name for v in model.graph.inputs]
    assert len(values) == len(set(values)) == 10
    names = [node.name for node in model.graph.all_nodes()]
    assert len(names) == len(set(names))
    assert all(names)
    assert [v.name for v in (*model.graph.inputs, *model.graph.outputs)] == ["c", "x", "y"]
    check(before, FixNamesPass(), inputs=[np.array(True), numbers(2)])
    assert not FixNamesPass()(before).modified


def test_names_that_are_unique_stay_and_omitted_outputs_get_none() -> None:
    model = parse("g (float[2,3,4] x, float[1,8,4] w, float[1,8,2] r) => (float[1,3,2] h) { _, h = LSTM<hidden_size=2>(x, w, r) }".replace("_, h", '"", h'))  # fmt: skip
    FixNamesPass()(model)
    assert [value.name for value in model.graph[0].outputs] == ["", "h"]
