"""Models with dynamic dimensions: as they are, made static, and half of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import samba_onnx
from samba_onnx.pef.manifest import Manifest

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'

CLASSIFIER = """
net (float[batch,3,8,8] x) => (float[batch,5] y) <int64 i0={0}, int64[1] ax={0}, int64[1] rest={-1}>
{
    c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, kernel)
    r = Relu(c)
    p = GlobalAveragePool(r)
    s = Shape(p)
    b = Gather<axis=0>(s, i0)
    b1 = Unsqueeze(b, ax)
    shape = Concat<axis=0>(b1, rest)
    f = Reshape(p, shape)
    y = Gemm(f, matrix, bias)
}
"""
"""A flattening ``x.view(x.size(0), -1)``, as TorchScript's exporter writes it."""

ATTENTION = """
net (float[batch,seq,8] x) => (float[batch,seq,8] y) <
    int64 i0={0}, int64 i1={1}, int64[1] ax={0}, int64[1] heads={2}, int64[1] width={4},
    int64[1] all={8}, float scale={0.5}
> {
    s = Shape(x)
    b0 = Gather<axis=0>(s, i0)
    q0 = Gather<axis=0>(s, i1)
    b = Unsqueeze(b0, ax)
    q = Unsqueeze(q0, ax)
    split = Concat<axis=0>(b, q, heads, width)
    merged = Concat<axis=0>(b, q, all)
    h = MatMul(x, matrix)
    r = Reshape(h, split)
    t = Transpose<perm=[0,2,1,3]>(r)
    u = Transpose<perm=[0,2,3,1]>(r)
    qk = MatMul(t, u)
    sc = Mul(qk, scale)
    p = Softmax<axis=-1>(sc)
    o = MatMul(p, t)
    back = Transpose<perm=[0,2,1,3]>(o)
    y = Reshape(back, merged)
}
"""
"""Two heads of four, with both dimensions of the input dynamic."""

TWO_INPUTS = """
net (float[batch,4] x, float[other,4] z) => (float[batch,4] y, float[other,4] w) {
    y = Tanh(x)
    w = Relu(z)
}
"""
"""Two halves that share no dimension."""

SIZES = {"kernel": (6, 3, 3, 3), "matrix": (6, 5), "bias": (5,)}
SQUARE = {"matrix": (8, 8)}
RTOL = 1e-5
"""Sums of at most 27 products in float32, which fusion may reorder."""


def model(text: str, sizes: dict[str, tuple[int, ...]] | None = None) -> onnx.ModelProto:
    """Return a model with random weights."""
    made = onnx.parser.parse_model(HEADER + text)
    generator = np.random.default_rng(0)
    for name, shape in (sizes or {}).items():
        array = generator.normal(size=shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(made)
    return made


def random(*shapes: tuple[int, ...]) -> list[Any]:
    """Return one random array per shape."""
    generator = np.random.default_rng(1)
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


def run(given: onnx.ModelProto, folder: Path, feeds: list[dict[str, Any]], **options: Any) -> Any:
    """Convert a model, run it on every feed, and compare numbers and copies."""
    session = ort.InferenceSession(given.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    # No sample in a child process: its comparison is made here, on every feed.
    pef = samba_onnx.convert(given, folder / "m.pef", **{"sample": False, **options})
    graph = pef.manifest.graphs[0]
    planned = graph.load_transfers
    with pef, samba_onnx.Device(pef, threads=1) as device:
        for feed in feeds:
            answer = device.run(feed)
            for name, expected in zip(names, session.run(names, feed), strict=True):
                assert answer[name].shape == expected.shape
                np.testing.assert_allclose(answer[name], expected, rtol=RTOL, atol=1e-6)
            planned += graph.run_transfers
            assert tuple(device.ledger.transfers) == planned
    return pef.manifest


def hints(manifest: Manifest) -> set[str]:
    """Return what the report advises for the nodes on the CPU."""
    return {node.hint for fallback in manifest.fallbacks for node in fallback.reasons}


def inputs(manifest: Manifest) -> dict[str, Any]:
    """Return the shapes that a PEF's inputs have."""
    shapes = {symbol.name: symbol.shape for symbol in manifest.symbols}
    return {name: shapes[name] for name in manifest.graphs[0].inputs}


def test_a_dynamic_batch_runs_on_the_cpu_at_any_size(tmp_path: Path) -> None:
    feeds = [{"x": random((batch, 3, 8, 8))[0]} for batch in (1, 5, 8)]
    manifest = run(model(CLASSIFIER, SIZES), tmp_path, feeds, keep_dynamic=True, sample=True)
    assert not manifest.sections
    assert not manifest.graphs[0].run_transfers
    assert hints(manifest) == {"--dim batch=1"}
    (found,) = manifest.dynamic_dimensions
    assert (found.name, found.inputs) == ("batch", ("x[0]",))
    assert inputs(manifest) == {"x": ("batch", 3, 8, 8)}


def test_a_given_batch_runs_on_the_rdu(tmp_path: Path) -> None:
    (x,) = random((8, 3, 8, 8))
    manifest = run(model(CLASSIFIER, SIZES), tmp_path, [{"x": x}, {"x": -x}], dims={"batch": 8})
    assert not manifest.fallbacks
    assert not manifest.dynamic_dimensions
    assert inputs(manifest) == {"x": (8, 3, 8, 8)}
    (section,) = manifest.sections
    assert not {"Shape", "Gather", "Unsqueeze", "Concat"} & set(section.operators)
    moved = [(t.symbol, t.bytes) for t in manifest.graphs[0].run_transfers]
    assert moved == [("x", 8 * 3 * 8 * 8 * 4), ("y", 8 * 5 * 4)]


def test_an_input_shape_does_the_same(tmp_path: Path) -> None:
    given = model(CLASSIFIER, SIZES)
    by_shape = samba_onnx.analyze(given, input_shapes={"x": (8, 3, 8, 8)})
    by_name = samba_onnx.analyze(given, dims={"batch": 8})
    assert by_shape.sections == by_name.sections
    assert by_shape.graphs == by_name.graphs


def test_a_wrong_size_is_refused_when_it_is_run(tmp_path: Path) -> None:
    given = model(CLASSIFIER, SIZES)
    pef = samba_onnx.convert(
        given, tmp_path / "m.pef", dims={"batch": 8}, sample=False, trial=False
    )
    with (
        pef,
        samba_onnx.Device(pef, threads=1) as device,
        pytest.raises(samba_onnx.errors.InputError, match=r"8.*3.*8.*8"),
    ):
        device.run({"x": random((4, 3, 8, 8))[0]})


@pytest.mark.parametrize("dims", [{}, {"batch": 2}, {"seq": 3}])
def test_a_dimension_that_is_left_keeps_its_readers_on_the_cpu(
    dims: dict[str, int], tmp_path: Path
) -> None:
    shapes = [
        (dims.get("batch", batch), dims.get("seq", seq), 8) for batch, seq in ((2, 3), (1, 7))
    ]
    feeds = [{"x": array} for array in random(*shapes)]
    given = model(ATTENTION, SQUARE)
    manifest = run(given, tmp_path, feeds, dims=dims, keep_dynamic=True)
    assert not manifest.sections
    left = {"batch", "seq"} - set(dims)
    assert {dimension.name for dimension in manifest.dynamic_dimensions} == left
    assert inputs(manifest) == {"x": (dims.get("batch", "batch"), dims.get("seq", "seq"), 8)}
    assert all(f"--dim {name}=" in " ".join(hints(manifest)) for name in left)
    assert not any(f"--dim {name}=" in " ".join(hints(manifest)) for name in dims)


@pytest.mark.parametrize("level", ["o0", "o3"])
def test_all_dimensions_given_run_on_the_rdu(level: str, tmp_path: Path) -> None:
    feed = {"x": random((2, 3, 8))[0]}
    dims = {"batch": 2, "seq": 3}
    manifest = run(model(ATTENTION, SQUARE), tmp_path, [feed], dims=dims, level=level)
    assert not manifest.fallbacks
    assert (len(manifest.sections) == 1) == (level == "o3")


def test_the_half_that_is_static_runs_on_the_rdu(tmp_path: Path) -> None:
    feeds = [{"x": x, "z": z} for x, z in (random((2, 4), (3, 4)), random((2, 4), (5, 4)))]
    given = model(TWO_INPUTS)
    manifest = run(given, tmp_path, feeds, dims={"batch": 2}, keep_dynamic=True)
    (section,), (fallback,) = manifest.sections, manifest.fallbacks
    assert (section.outputs, fallback.outputs) == (("y",), ("w",))
    assert hints(manifest) == {"--dim other=1"}
    assert [t.symbol for t in manifest.graphs[0].run_transfers] == ["x", "y"]
    assert not manifest.graphs[0].boundaries


def test_following_the_hint_helps(tmp_path: Path) -> None:
    given = model(ATTENTION, SQUARE)
    (hint,) = hints(samba_onnx.analyze(given, keep_dynamic=True))
    assert hint == "--dim batch=1 --dim seq=1"
    dims = dict(option.strip().split("=") for option in hint.split("--dim ")[1:])
    sizes = {name: int(size) for name, size in dims.items()}
    assert not samba_onnx.analyze(given, dims=sizes).fallbacks


TIED = """
net (float[batch,4] x, int64[batch,seq] ids, float[4] scale) => (float[batch,4] y, float[batch,seq] w) {
    z = Mul(x, scale)
    y = Tanh(z)
    w = Cast<to=1>(ids)
}
"""
"""Two inputs that share a dimension by its name."""

NAMELESS = "net (float[?,?] x) => (float[?,?] y) { y = Relu(x) }"

DOWNSAMPLED = """
net (float[batch,3,h,8] x) => (float[batch,6,h,4] y) {
    y = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, kernel)
}
"""
"""The output's dimension has the input's name, and half its size."""

VALUES = """
net (float[batch,n] x) => (float[batch,n] y) <int64 i1={1}, int64 zero={0}, int64 one={1}, int64[1] ax={0}>
{
    s = Shape(x)
    n = Gather<axis=0>(s, i1)
    r = Range(zero, n, one)
    f = Cast<to=1>(r)
    y = Add(x, f)
}
"""
"""The size is a number that is computed with."""

BRANCHES = """
net (float[batch,4] x, bool c) => (float[batch,4] y) {
    y = If (c) <
        then_branch = yes () => (float[batch,4] a) { a = Tanh(x) },
        else_branch = no () => (float[batch,4] b) { b = Neg(x) }
    >
}
"""


@pytest.mark.parametrize(
    ("text", "sizes", "options", "shapes"),
    [
        (TIED, {}, {}, {"x": (1, 4), "ids": (1, 128), "scale": (4,)}),
        (TIED, {}, {"dims": {"seq": 5}}, {"x": (1, 4), "ids": (1, 5), "scale": (4,)}),
        (TIED, {}, {"input_shapes": {"x": (3, 4)}}, {"x": (3, 4), "ids": (3, 128), "scale": (4,)}),
        (NAMELESS, {}, {}, {"x": (1, 1)}),
        (NAMELESS, {}, {"input_shapes": {"": (None, 3)}}, {"x": (1, 3)}),
        (DOWNSAMPLED, SIZES, {}, {"x": (1, 3, 224, 8)}),
        (DOWNSAMPLED, SIZES, {"dims": {"h": 6}}, {"x": (1, 3, 6, 8)}),
        (VALUES, {}, {"dims": {"n": 3}}, {"x": (1, 3)}),
        (BRANCHES, {}, {}, {"x": (1, 4), "c": ()}),
    ],
)
def test_what_nothing_states_is_one_or_the_length_of_a_sequence(
    text: str,
    sizes: dict[str, tuple[int, ...]],
    options: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    tmp_path: Path,
) -> None:
    given = model(text, {name: SIZES[name] for name in sizes if name in text})
    kinds = {value.name: value.type.tensor_type.elem_type for value in given.graph.input}
    generator = np.random.default_rng(1)
    feed = {
        name: generator.normal(size=shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[name]))
        for name, shape in shapes.items()
    }
    manifest = run(given, tmp_path, [feed], **options)
    assert inputs(manifest) == shapes
    assert not manifest.dynamic_dimensions
    known = {symbol.name: symbol.shape for symbol in manifest.symbols}
    assert all(
        isinstance(size, int) for name in manifest.graphs[0].outputs for size in known[name] or ()
    )


def test_the_note_says_what_was_assumed_and_how_to_say_otherwise() -> None:
    (note,) = samba_onnx.analyze(model(ATTENTION, SQUARE), dims={"seq": 3}).notes
    assert note.startswith("of the dynamic dimensions batch is taken as 1")
    assert "--dim batch=1" in note
    assert "--keep-dynamic" in note
    (note,) = samba_onnx.analyze(model(NAMELESS)).notes
    assert note.startswith("of the dynamic dimensions x[0], x[1] are taken as 1")
    assert "--input-shape x=1,1" in note
    assert not samba_onnx.analyze(model(NAMELESS), input_shapes={"x": (1, 1)}).notes


def test_a_default_knows_the_size_of_its_input(tmp_path: Path) -> None:
    given = model("net (float[batch,n] x, float[n] b) => (float[batch,n] y) { y = Add(x, b) }")
    default = np.array([1, 2, 3], np.float32)
    given.graph.initializer.append(onnx.numpy_helper.from_array(default, "b"))
    with samba_onnx.convert(given, tmp_path / "m.pef") as pef:
        assert inputs(pef.manifest) == {"x": (1, 3), "b": (3,)}
        assert [(one.name, one.assumed) for one in pef.manifest.bound_dimensions] == [
            ("batch", True),
            ("n", False),
        ]
        with samba_onnx.Device(pef, threads=1) as device:
            assert device.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2, 3, 4]]


def test_a_nameless_shape_needs_a_model_with_one_input() -> None:
    with pytest.raises(samba_onnx.errors.UsageError, match=r"has 3 \(x, ids, scale\)"):
        samba_onnx.analyze(model(TIED), input_shapes={"": (1, 4)})


@pytest.mark.parametrize("from_file", [False, True])
def test_graphs_for_several_sizes_share_their_weights(from_file: bool, tmp_path: Path) -> None:
    given = model(CLASSIFIER, {**SIZES, "kernel": (300, 3, 3, 3), "matrix": (300, 5)})
    onnx.save(given, tmp_path / "m.onnx")
    session = ort.InferenceSession(given.SerializeToString())
    source = tmp_path / "m.onnx" if from_file else given
    single = samba_onnx.convert(
        source, tmp_path / "one.pef", dims={"batch": 8}, sample=False, trial=False
    )
    single.close()
    with samba_onnx.convert(source, tmp_path / "m.pef", dims={"batch": (1, 8, 3)}) as pef:
        names = [graph.name for graph in pef.manifest.graphs]
        assert names == ["batch=1", "batch=8", "batch=3"]
        for name in ("kernel", "matrix", "bias"):
            readers = [stage for stage in pef.manifest.sections if name in stage.weights]
            assert len(readers) == 3
        stored = [symbol for symbol in pef.manifest.symbols if symbol.stored]
        assert {symbol.name for symbol in stored} == {"kernel", "matrix"}
        assert [len(graph.load_transfers) for graph in pef.manifest.graphs] == [3, 0, 0]
        with samba_onnx.Device(pef, threads=1) as device:
            for batch, graph in ((8, 1), (1, 0), (3, 2), (8, 1)):
                (x,) = random((batch, 3, 8, 8))
                answer = device.run({"x": x})
                (expected,) = session.run(["y"], {"x": x})
                np.testing.assert_allclose(answer["y"], expected, rtol=RTOL, atol=1e-6)
                copies = device.ledger.run(-1)
                assert tuple(copies) == pef.manifest.graphs[graph].run_transfers
            assert device.run({"x": x}, ["y"], graph="batch=8").keys() == {"y"}
            with pytest.raises(samba_onnx.errors.InputError, match="no graph of the PEF takes x"):
                device.run({"x": random((4, 3, 8, 8))[0]})
            with pytest.raises(samba_onnx.errors.InputError, match="no graph of the PEF takes z"):
                device.run({"z": x})
        assert samba_onnx.verify(given, pef).passed
        assert samba_onnx.self_test(pef).passed


def test_all_combinations_of_sizes_are_graphs() -> None:
    given = model(ATTENTION, SQUARE)
    manifest = samba_onnx.analyze(given, dims={"batch": [1, 2], "seq": [3, 4]})
    assert [graph.name for graph in manifest.graphs] == [
        *("batch=1,seq=3", "batch=1,seq=4", "batch=2,seq=3", "batch=2,seq=4")
    ]
    manifest = samba_onnx.analyze(given, dims={"batch": [1, 2], "seq": 3})
    assert [graph.name for graph in manifest.graphs] == ["batch=1", "batch=2"]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"batch": []}, "expected integers"),
        ({"batch": [1, 1]}, "a size twice"),
        ({"batch": ["a"]}, "expected integers"),
        ({"batch": range(1, 10), "seq": range(1, 10)}, "81 combinations, a PEF has at most 64"),
    ],
)
def test_sizes_that_make_no_graphs_are_refused(dims: Any, message: str) -> None:
    with pytest.raises(samba_onnx.errors.UsageError, match=message):
        samba_onnx.analyze(model(ATTENTION, SQUARE), dims=dims)
