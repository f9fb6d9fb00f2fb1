"""Models that onnxruntime saved after its highest level of optimisation, against what it saved them from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from samba_onnx.facts.domains import BLOCKED_DOMAIN, is_default
from samba_onnx.passes.rewrites import expand_blocked_layouts
from samba_onnx.passes.rewrites.foreign.blocked_layouts import BLOCKED_RULES
from samba_onnx.passes.rewrites.foreign.drafting import CannotExpandError, Draft
from samba_onnx.passes.rewrites.rewriting import WEIGHT
from samba_onnx.runtime.engine.onnxruntime.child_types import channel_block
from tests.backend_cases import run_onnxruntime
from tests.passes.rewrites.applying import numbers, operators
from tests.passes.rewrites.foreign.expanding import expanded

BLOCK = channel_block()["block"]


@pytest.fixture(autouse=True)
def block_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask onnxruntime here, not in a child process."""
    monkeypatch.setattr(expand_blocked_layouts, "channel_block", lambda: BLOCK)


def network(text: str, image: Sequence[int], **weights: Sequence[int]) -> onnx.ModelProto:
    """Return a network of one image with random weights of some shapes."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float{list(image)} x) => (float[] y) {{ {text} }}'
    )
    proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    for seed, (name, shape) in enumerate(weights.items()):
        scaled = numbers(*shape, seed=seed) / np.float32(np.sqrt(np.prod(shape[1:])))
        proto.graph.initializer.append(onnx.numpy_helper.from_array(scaled, name))
    return proto


def saved(proto: onnx.ModelProto, path: Path, level: str = "ALL") -> onnx.ModelProto:
    """Return what onnxruntime saves of a model after one level of its optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
    )
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return onnx.load(path)


NETWORKS = {
    "few channels of the image, a sum, every channel with itself, means": network(
        """a = Conv<pads=[1,1,1,1]>(x, w, b) c = Relu(a) d = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
        e = Conv<pads=[1,1,1,1]>(d, v) f = Add(e, d) g = Relu(f) h = Conv<group=32>(g, u)
        i = AveragePool<kernel_shape=[2,2]>(h) y = GlobalAveragePool(i)""",
        (2, 3, 12, 12), w=(32, 3, 3, 3), b=(32,), v=(32, 32, 3, 3), u=(32, 1, 3, 3),
    ),
    "channels that are no whole blocks": network(
        """a = Conv<pads=[1,1,1,1]>(x, w, b) c = Sigmoid(a) d = Conv<group=36>(c, v)
        e = Conv(d, u) y = GlobalMaxPool(e)""",
        (1, 3, 12, 12), w=(36, 3, 3, 3), b=(36,), v=(36, 1, 3, 3), u=(20, 36, 1, 1),
    ),
    "an image of many channels, groups, values side by side": network(
        """a = Conv<group=2, pads=[1,1,1,1]>(x, w) c = Conv(x, v) d = Concat<axis=1>(a, c)
        y = Conv<strides=[2,2]>(d, u)""",
        (1, 32, 8, 8), w=(32, 16, 3, 3), v=(32, 32, 1, 1), u=(16, 64, 3, 3),
    ),
    "enlarged": network(
        """a = Conv<pads=[1,1,1,1]>(x, w) s = Constant<value_floats=[1.0, 1.0, 3.0, 3.0]>()
        c = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(a, , s)
        y = Conv(c, v)""",
        (1, 3, 6, 6), w=(16, 3, 3, 3), v=(16, 16, 1, 1),
    ),
    "enlarged with numbers in between, from one block of channels": network(
        """a = Conv<pads=[1,1,1,1]>(x, w) s = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>()
        c = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(a, , s)
        y = Conv(c, v)""",
        (1, 3, 6, 6), w=(BLOCK, 3, 3, 3), v=(2 * BLOCK, BLOCK, 3, 3),
    ),
    "windows over the edge": network(
        """a = Conv<pads=[1,1,1,1]>(x, w) c = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(a)
        d = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(c) y = Conv(d, v)""",
        (1, 3, 8, 8), w=(16, 3, 3, 3), v=(16, 16, 1, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_blocks_are_undone(name: str, tmp_path: Path) -> None:
    original = NETWORKS[name]
    proto = saved(original, tmp_path / "saved.onnx")
    assert any(node.domain == BLOCKED_DOMAIN for node in proto.graph.node)
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    image = numbers(*shape, seed=9)
    model, notes = expanded(proto)
    assert all(is_default(node.domain) for node in model.graph)
    assert f"laid out in blocks of {BLOCK} channels" in " ".join(notes)
    before = run_onnxruntime(original.SerializeToString(), [image])[0]
    after = run_onnxruntime(ir.to_proto(model).SerializeToString(), [image])[0]
    # sums in another order
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_the_levels_below_need_no_undoing(tmp_path: Path) -> None:
    for level in ("BASIC", "EXTENDED"):
        proto = saved(next(iter(NETWORKS.values())), tmp_path / "saved.onnx", level)
        _, notes = expanded(proto)
        assert not any("blocks of" in note for note in notes)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({"channels_last": 0}, (1, 32, 3, 5)),
        ({"channels_last": 1}, (1, 3, 5, 32)),
        ({"channels_last": 0}, (1, 20, 3, 5)),
    ],
)
def test_to_blocks_and_back(attributes: dict[str, int], shape: tuple[int, ...]) -> None:
    channels = shape[3] if attributes["channels_last"] else shape[1]
    nodes = [
        onnx.helper.make_node("ReorderInput", ["x"], ["a"], domain=BLOCKED_DOMAIN, **attributes),
        onnx.helper.make_node("GlobalMaxPool", ["a"], ["b"], domain=BLOCKED_DOMAIN),
        onnx.helper.make_node(
            "ReorderOutput", ["b"], ["y"], domain=BLOCKED_DOMAIN, channels=channels, **attributes
        ),
    ]
    kind = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = onnx.helper.make_graph(nodes, "g", [kind], [onnx.ValueInfoProto(name="y")])
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(BLOCKED_DOMAIN, 1)]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    image = numbers(*shape)
    model, _ = expanded(proto)
    assert "GlobalMaxPool" in operators(model)
    assert all(is_default(node.domain) for node in model.graph)
    before = run_onnxruntime(proto.SerializeToString(), [image])[0]
    after: Any = run_onnxruntime(ir.to_proto(model).SerializeToString(), [image])[0]
    np.testing.assert_array_equal(after, before)


def test_what_was_a_weight_in_blocks_is_a_weight(tmp_path: Path) -> None:
    proto = saved(NETWORKS["windows over the edge"], tmp_path / "saved.onnx")
    nodes = [node for node in ir.from_proto(proto).graph if node.domain == BLOCKED_DOMAIN]
    drafts = [Draft(node) for node in nodes if node.op_type == "Conv"]
    for draft in drafts:
        BLOCKED_RULES["Conv"](draft, BLOCK)
    marked = [[bool(new.outputs[0].meta.get(WEIGHT)) for new in draft.nodes] for draft in drafts]
    assert [sum(marks) for marks in marked] == [1, 1]


def _draft(text: str, weight: Any = None) -> Draft:
    """Return what the rule of the only node of a graph writes, for blocks of four channels."""
    graph = onnx.parser.parse_graph(f"g {text}")
    graph.node[0].domain = BLOCKED_DOMAIN
    if weight is not None:
        graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    (node,) = ir.from_proto(graph)
    draft = Draft(node)
    BLOCKED_RULES[node.op_type](draft, 4)
    return draft


@pytest.mark.parametrize(
    ("shape", "group", "blocks_of_inputs"),
    [
        ((8, 4, 2), "", True),
        ((8, 8, 1, 3), "<group=1>", True),
        ((8, 3, 2, 1), "<group=1>", False),
        ((8, 3, 2, 1), "", False),
        ((8, 4, 1, 1), "<group=2>", True),
        ((8, 1, 2, 2), "<group=8>", False),
    ],
)
def test_a_weight_is_taken_out_of_its_blocks(
    shape: tuple[int, ...], group: str, blocks_of_inputs: bool
) -> None:
    outputs, inputs, *window = shape
    weight = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    # As onnxruntime lays it out: blocks of outputs and of inputs, then the window, then both in a block.
    split = weight.reshape(
        outputs // 4, 4, *((-1, 4) if blocks_of_inputs else (inputs, 1)), *window
    )
    stored = np.moveaxis(split, (3, 1), (-2, -1)).reshape(shape)
    image = ["1", str(inputs), *["9"] * len(window)]
    draft = _draft(f"(float[{','.join(image)}] x) => (y) {{ y = Conv{group}(x, w) }}", stored)
    values = [
        new.attributes["value"].as_tensor() for new in draft.nodes if new.op_type == "Constant"
    ]
    assert len(values) == 1
    np.testing.assert_array_equal(values[0].numpy(), weight)


@pytest.mark.parametrize(
    ("shape", "group", "reason"),
    [
        ((8, 4), 1, "its weight of 2 dimensions is none of a convolution"),
        ((6, 4, 1, 1), 1, "its weight of 6 by 4 channels has no whole blocks of 4, as "),
        ((8, 6, 1, 1), 1, "its weight of 8 by 6 channels has no whole blocks of 4, as "),
        ((8, 2, 1, 1), 2, "its weight of 8 by 2 channels has no whole blocks of 4, as "),
        ((6, 1, 1, 1), 6, "its weight of 6 by 1 channels has no whole blocks of 4, as "),
    ],
)
def test_a_weight_without_whole_blocks_is_refused(
    shape: tuple[int, ...], group: int, reason: str
) -> None:
    text = f"(float[1,8,5,5] x) => (y) {{ y = Conv<group={group}>(x, w) }}"
    with pytest.raises(CannotExpandError, match=f"^{reason}"):
        _draft(text, np.zeros(shape, np.float32))


def test_a_weight_that_is_computed_is_refused() -> None:
    with pytest.raises(CannotExpandError, match=r"^its weight 'w' is not constant$"):
        _draft("(float[1,4,5,5] x, float[4,4,1,1] w) => (y) { y = Conv(x, w) }")


@pytest.mark.parametrize(
    ("shape", "last", "pads"),
    [
        ([1, 6, 2, 3], 0, [0, 0, 0, 0, 0, 2, 0, 0]),
        ([1, 2, 3, 7], 1, [0, 0, 0, 0, 0, 1, 0, 0]),
        ([1, 8, 3, 7], 0, None),
    ],
)
def test_channels_are_filled_up_to_whole_blocks(
    shape: list[int], last: int, pads: list[int] | None
) -> None:
    draft = _draft(f"(float{shape} x) => (y) {{ y = ReorderInput<channels_last={last}>(x) }}")
    numbers = [
        new.attributes["value"].as_tensor().numpy().tolist()
        for new in draft.nodes
        if new.op_type == "Constant"
    ]
    assert numbers == ([] if pads is None else [pads])
    assert [new.op_type for new in draft.nodes].count("Pad") == len(numbers)


@pytest.mark.parametrize(("channels", "written"), [(6, ["Slice"]), (8, [])])
def test_channels_beyond_the_last_are_cut_off(channels: int, written: list[str]) -> None:
    text = f"(float[1,8,{channels},5] x) => (y) {{ y = ReorderOutput<channels={channels}>(x) }}"
    operators = [new.op_type for new in _draft(text).nodes if new.op_type != "Constant"]
    assert operators == written


@pytest.mark.parametrize(
    ("mode", "floor"), [("", True), (', mode="nearest"', True), (', mode="linear"', False)]
)
def test_only_what_takes_the_nearest_number_says_which_that_is(mode: str, floor: bool) -> None:
    draft = _draft(f"(float[1,8,5,5] x) => (y) {{ y = Upsample<scales=[1,1,2,2]{mode}>(x) }}")
    assert ("nearest_mode" in draft.nodes[-1].attributes) == floor
