"""What prepares a model for training: the passes of the one pipeline, and the choice of weights."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from samba_onnx.errors import InternalError, ModelError
from samba_onnx.importing.preparation import prepare
from samba_onnx.passes import pipeline
from samba_onnx.passes.order import PIPELINE, RUNNING, TRAINING, PassContext, PassEntry
from tests.importing.building import exported, parse, ramp
from tests.passes.rewrites.applying import TRACE

TRAINED = """g (float[2, 4] x) => (float[2, 3] y) {
 t = Transpose <perm = [1, 0]> (w)
 h = MatMul(x, t)
 s = Shape(h)
 r = Reshape(h, s)
 b = Add(r, bias)
 y = Dropout(b) }"""


def trained() -> onnx.ModelProto:
    model = parse(TRAINED, w=ramp(3, 4), bias=ramp(3))
    for number, node in enumerate(model.graph.node):
        node.metadata_props.add(key=TRACE, value=f"line {number}")
    return model


class Replaces(ir.passes.InPlacePass):
    """A pass that makes every Add anew, and says nothing of where it comes from."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        for node in [node for node in model.graph if node.op_type == "Add"]:
            new = ir.node("Add", list(node.inputs), name=f"{node.name}_new")
            new.outputs[0].name, node.outputs[0].name = node.outputs[0].name, "old"
            new.outputs[0].type, new.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
            model.graph.insert_before(node, new)
            ir.convenience.replace_all_uses_with(
                node.outputs[0], new.outputs[0], replace_graph_outputs=True
            )
            model.graph.remove(node, safe=True)
        return ir.passes.PassResult(model, modified=True)


class Renames(ir.passes.InPlacePass):
    """A pass with a fault: it changes the interface."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        model.graph.inputs[0].name = "other"
        return ir.passes.PassResult(model, modified=True)


def with_step(monkeypatch: pytest.MonkeyPatch, step: PassEntry) -> None:
    monkeypatch.setattr(pipeline, "TRAINING", (*TRAINING, step))


def test_both_selections_are_of_one_pipeline() -> None:
    assert {*RUNNING, *TRAINING} == set(PIPELINE)
    for selection in (RUNNING, TRAINING):
        rest = iter(PIPELINE)
        assert all(step in rest for step in selection)  # in the order of the pipeline
    names = [type(step.make(PassContext(Table()))).__name__ for step in TRAINING if step.running]
    assert {"BindDimensionsPass", "FoldBatchNormalizationPass", "FixNamesPass"}.isdisjoint(names)


class Table:
    repeats_bodies = False

    def knows(self, domain: str, op_type: str) -> bool:
        return True


def test_every_pass_is_recorded_with_its_seconds() -> None:
    passes = prepare(trained(), None).passes
    names = [done.name for done in passes]
    assert names.index("ConvertOpset") < names.index("LiftWeights") < names.index("FoldConstants")
    assert all(done.seconds is not None and done.seconds > 0 for done in passes)
    assert (passes[0].nodes_before, passes[-1].nodes_after) == (6, 3)
    smaller = [done.name for done in passes if done.nodes_after < done.nodes_before]
    assert "RemoveNoops" in smaller  # the Dropout


def test_weights_are_inputs_before_anything_is_folded() -> None:
    prepared = prepare(trained(), None)
    assert [value.name for value in prepared.inputs] == ["x"]
    assert [value.name for value in prepared.weights] == ["w", "bias"]
    assert [value.name for value in prepared.model.graph.inputs] == ["x", "w", "bias"]
    assert "Transpose" in [node.op_type for node in prepared.model.graph]  # of w, not folded
    for value, array in zip(prepared.weights, (ramp(3, 4), ramp(3)), strict=True):
        np.testing.assert_array_equal(prepared.weights[value].numpy(), array)


def test_new_nodes_get_the_metadata_of_those_that_they_replace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_step(monkeypatch, PassEntry(lambda context: Replaces()))
    nodes = {node.op_type: node for node in prepare(trained(), None).model.graph}
    assert nodes["Add"].name is not None
    assert nodes["Add"].name.endswith("_new")
    assert nodes["Add"].metadata_props[TRACE] == "line 4"


def test_a_pass_that_changes_the_interface_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with_step(monkeypatch, PassEntry(lambda context: Renames()))
    with pytest.raises(InternalError, match="pass Renames changed the interface: inputs had x: "):
        prepare(trained(), None)


def test_a_fault_names_the_pass_and_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(ir.passes.InPlacePass):
        def call(self, model: ir.Model) -> ir.passes.PassResult:
            raise ValueError("of all things")

    with_step(monkeypatch, PassEntry(lambda context: Breaks()))
    with pytest.raises(InternalError, match=r"pass Breaks failed: of all .*: ForgetShapes, .*Lift"):
        prepare(trained(), None)


def test_only_the_step_that_may_adds_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tuple(
        PassEntry(step.make, running=False) if step.adds_inputs else step for step in TRAINING
    )
    monkeypatch.setattr(pipeline, "TRAINING", steps)
    with pytest.raises(InternalError, match="LiftWeights changed the number of inputs from 1 to 3"):
        prepare(trained(), None)


def test_a_version_that_cannot_be_converted_is_refused() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 11]>'
        "g (float[1,1,2,2] x) => (float[1,1,4,4] y)"
        "<float[0] roi = {}, float[4] scales = {1, 1, 2, 2}>"
        '{ y = Resize <coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, scales) }'
    )
    with pytest.raises(
        ModelError, match=r"trained: .*tf_half_pixel_for_nn.*; export it with a newer"
    ):
        prepare(model, None)


def test_stack_traces_of_the_exporter_stay() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    model = exported(module, torch.ones(2, 4), optimize=False)
    nodes = list(prepare(model, None).model.graph.all_nodes())
    assert len(nodes) >= 4
    assert all("pkg.torch.onnx.stack_trace" in node.metadata_props for node in nodes)
