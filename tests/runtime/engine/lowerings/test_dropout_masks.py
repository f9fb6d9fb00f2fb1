"""Dropout masks: exact at the ends, fair in between, independent, and the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from onnx import ModelProto, NodeProto, parser

from samba_onnx.errors import PefFormatError
from samba_onnx.pef.manifest import Argin
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.engine.lowerings.dropout_masks import expand_dropout_masks
from tests.runtime.building import FROM, INPUT, OUTPUT, TO, Plan, build, fallback, planned, section

HEADER = '<ir_version: 10, opset_import: ["" : 21, "samba" : 1]>\n'
Mask = npt.NDArray[np.bool_]


def model(shape: tuple[int, ...], stream: int = 0) -> ModelProto:
    dims = ",".join(map(str, shape))
    of = f"bool[{dims}]" if shape else "bool"
    proto = parser.parse_model(
        HEADER + f"g (float rate, int32 seed) => ({of} mask) "
        f"{{ mask = samba.DropoutMask<shape=[1], stream={stream}>(rate, seed) }}"
    )
    attribute = next(item for item in proto.graph.node[0].attribute if item.name == "shape")
    del attribute.ints[:]
    attribute.ints.extend(shape)
    return proto


def maker(shape: tuple[int, ...], stream: int = 0) -> Callable[[float, int], Mask]:
    proto = model(shape, stream)
    expand_dropout_masks(proto)
    assert [opset.domain for opset in proto.opset_import] == [""]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])

    def make(rate: float, seed: int) -> Mask:
        feed = {"rate": np.array(rate, np.float32), "seed": np.array(seed, np.int32)}
        result: Mask = session.run(None, feed)[0]
        return result

    return make


def standardized(mask: Mask, rate: float) -> npt.NDArray[np.float64]:
    """Return numbers of mean 0 and variance 1, if the mask is fair."""
    result: npt.NDArray[np.float64] = (mask.reshape(-1) - (1 - rate)) / math.sqrt(rate * (1 - rate))
    return result


@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (8,), (0, 3), (5, 7, 11), (64, 64), (33000,), (3, 65536)]
)
def test_shapes_and_exact_ends(shape: tuple[int, ...]) -> None:
    make = maker(shape)
    for seed in (0, 1, 12345, 2**31 - 1):
        assert make(0.0, seed).shape == shape
        assert make(0.0, seed).all()
        assert not make(1.0, seed).any()
        np.testing.assert_array_equal(make(0.3, seed), make(0.3, seed))


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.9])
def test_fair_and_independent(rate: float) -> None:
    """Means and correlations stay within five standard deviations, 1 of 1.7 million by chance."""
    size = 1 << 18
    streams = [maker((size,), stream) for stream in range(3)]
    masks = [standardized(make(rate, seed), rate) for make in streams for seed in (0, 1, 2, 977)]
    scale = math.sqrt(size)
    assert max(abs(mask.mean()) for mask in masks) * scale < 5
    # Each entry is a mean of products: of masks of other seeds and streams, which must not agree.
    table = np.corrcoef(masks) - np.eye(len(masks))
    assert np.abs(table).max() * scale < 5
    for mask in masks[:4]:
        for distance in (1, 2, 3, 64, 768, 4096, size // 8, size // 2):
            assert abs((mask[:-distance] * mask[distance:]).mean()) * scale < 5


def test_one_word_serves_eight_values_that_are_independent() -> None:
    """All 256 patterns of the values that share a word occur equally often at rate 1/2."""
    size = 1 << 20
    counts = np.zeros(256)
    for seed in range(4):
        lanes = maker((size,))(0.5, seed).reshape(8, -1)
        counts += np.bincount(np.packbits(lanes, axis=0)[0], minlength=256)
    expected = counts.sum() / 256
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Chi-square with 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert abs(statistic - 255) < 5 * 22.6


def test_rate_alone_changes_the_threshold() -> None:
    """What is dropped at a low rate is dropped at every higher one."""
    make = maker((10000,))
    assert not (make(0.5, 3) & ~make(0.2, 3)).any()


@pytest.mark.parametrize("make_stage", [section, fallback])
def test_masks_in_stages(tmp_path: Path, make_stage: Callable[..., object]) -> None:
    proto = parser.parse_model(
        HEADER + "g (float[64] x, float rate, int32 seed) => (float[64] y) "
        "{ m = samba.DropoutMask<shape=[64], stream=5>(rate, seed) z = Sub(x, x) "
        "y = Where(m, x, z) }"
    )
    plan = Plan(
        [make_stage(proto)],  # type: ignore[list-item]
        ["x", "rate", "seed"],
        ["y"],
        [("x", TO, INPUT, 0), ("y", FROM, OUTPUT, 0)] if make_stage is section else [],
        argins=[
            Argin("rate", "tensor(float)", 0.5, (0,)),
            Argin("seed", "tensor(int32)", 7.0, (0,)),
        ],
    )
    x = np.ones(64, np.float32)
    with build(tmp_path, plan) as pef, Device(pef) as device:
        expected = maker((64,), 5)
        np.testing.assert_array_equal(device.run({"x": x})["y"], expected(0.5, 7))
        assert device.ledger.run() == planned(plan, pef)
        for seed in (8, 9, 2**31 - 1):
            y = device.run({"x": x}, argins={"seed": seed})["y"]
            np.testing.assert_array_equal(y, expected(0.5, seed))
        y = device.run({"x": x}, argins={"rate": 0.0})["y"]
        np.testing.assert_array_equal(y, x)


def test_masks_in_branches() -> None:
    proto = parser.parse_model(
        HEADER + "g (bool c, float rate, int32 seed) => (bool[9] mask) { mask = If(c) <"
        "then_branch = t () => (bool[9] a) "
        "{ a = samba.DropoutMask<shape=[9], stream=1>(rate, seed) }, "
        "else_branch = e () => (bool[9] b) "
        "{ b = samba.DropoutMask<shape=[9], stream=2>(rate, seed) }> }"
    )
    expand_dropout_masks(proto)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for stream, branch in ((1, True), (2, False)):
        feed = {
            "c": np.array(branch),
            "rate": np.array(0.5, np.float32),
            "seed": np.array(3, np.int32),
        }
        np.testing.assert_array_equal(session.run(None, feed)[0], maker((9,), stream)(0.5, 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node.ClearField("attribute"),
        lambda node: node.attribute.add(name="more"),
        lambda node: node.input.pop(),
        lambda node: node.output.append("more"),
    ],
)
def test_other_nodes_of_the_domain_are_refused(change: Callable[[NodeProto], object]) -> None:
    proto = model((4,))
    change(proto.graph.node[0])
    with pytest.raises(PefFormatError, match="no samba::DropoutMask"):
        expand_dropout_masks(proto)


@pytest.mark.parametrize("shape", [(-1,), (2**33,), (2**40, 2**40)])
def test_impossible_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(PefFormatError, match="impossible shape"):
        expand_dropout_masks(model(shape))


@pytest.mark.parametrize(("shape", "is_cut"), [((8,), False), ((8, 8), False), ((63,), True)])
def test_only_a_mask_that_leaves_words_half_used_is_cut(
    shape: tuple[int, ...], is_cut: bool
) -> None:
    proto = model(shape)
    expand_dropout_masks(proto)
    assert ("Slice" in {node.op_type for node in proto.graph.node}) is is_cut


@pytest.mark.parametrize(
    ("size", "stream", "seed", "mask"),
    [
        (64, 0, 0, "563736026aaea37c"),
        (64, 0, 1, "5cb7df91026f9406"),
        (64, 64, 1, "5d80aa2cb34be122"),
        (64, -1, 1, "4ce77eae087d9a4c"),
        (8, 3, 7, "73"),
    ],
)
def test_masks_are_the_same_for_ever(size: int, stream: int, seed: int, mask: str) -> None:
    """Training that goes on with another version goes on with the same masks."""
    assert np.packbits(maker((size,), stream)(0.5, seed)).tobytes().hex() == mask


def test_other_operators_of_the_domain_and_other_domains_stay_as_they_are() -> None:
    proto = model((4,))
    node = proto.graph.node[0]
    for domain, kind in (("samba", "Other"), ("other", "DropoutMask")):
        node.domain, node.op_type = domain, kind
        expand_dropout_masks(proto)
        assert list(proto.graph.node) == [node]
