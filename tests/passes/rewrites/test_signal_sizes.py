"""Sizes of images and sound that nobody states."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.assume_lengths import AssumeLengthsPass
from samba_onnx.passes.rewrites.bind_dimensions import BindDimensionsPass
from samba_onnx.passes.rewrites.interface import dimensions


def _bound(
    shape: str, body: str, kind: str = "float", kernel: str = "", name: str = "x"
) -> tuple[object, ...] | None:
    """Return the shape of the input of a model after both passes."""
    weight = f", float[{kernel}] w" if kernel else ""
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({kind}[{shape}] {name}{weight}) => (float y)'
        f" {{ {body} }}"
    )
    assert not AssumeLengthsPass({}, {}, 1)(model).modified
    BindDimensionsPass({}, {}, 1)(model)
    return dimensions(model.graph.inputs[0].shape)


PLAIN = "y = Conv(x, w)"
PREPARED = """f = Cast <to = 1> (x) c = Constant <value_float = 0.5> () s = Sub(f, c)
    t = Transpose <perm = [0, 3, 1, 2]> (s) y = Conv(t, w)"""
SOUND = "axis = Constant <value_ints = [1]> () u = Unsqueeze({x}, axis) y = Conv(u, w)"


@pytest.mark.parametrize(
    ("shape", "body", "kind", "expected"),
    [
        ("batch,3,height,width", PLAIN, "float", (1, 3, 224, 224)),
        ("?,3,?,?", PLAIN, "float", (1, 3, 224, 224)),
        ("batch,3,48,width", PLAIN, "float", (1, 3, 48, 224)),
        ("batch,rows,columns,3", PREPARED, "uint8", (1, 224, 224, 3)),
        ("batch,64,columns,3", PREPARED, "float", (1, 64, 224, 3)),
        # Columns that could be channels are none, where channels stand in front.
        ("batch,3,rows,4", PLAIN, "float", (1, 3, 224, 4)),
        # Where both axes may be channels, nothing is known; samples of a table are a batch.
        ("?,?,?,?", PLAIN, "float", (1, 1, 1, 1)),
        ("samples,3,8,8", PLAIN, "float", (1, 3, 8, 8)),
    ],
)
def test_sides_of_images(shape: str, body: str, kind: str, expected: tuple[int, ...]) -> None:
    assert _bound(shape, body, kind, "4,3,3,3") == expected


@pytest.mark.parametrize(
    ("shape", "body", "kernel", "expected"),
    [
        ("batch,num_samples", SOUND, "4,1,8", (1, 16_000)),
        ("batch,sequence", SOUND, "4,1,8", (1, 16_000)),
        ("?,?", SOUND, "4,1,8", (1, 16_000)),
        ("batch,1,n", PLAIN, "4,1,8", (1, 1, 16_000)),
        ("batch,80,n", PLAIN, "4,80,8", (1, 80, 128)),
        # By name alone: what a Fourier transform reads meets no convolution.
        ("batch,audio_length", "y = Exp(x)", "", (1, 16_000)),
    ],
)
def test_samples_and_frames(shape: str, body: str, kernel: str, expected: tuple[int, ...]) -> None:
    assert _bound(shape, body.format(x="x"), kernel=kernel) == expected


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("samples,features", "float"),
        ("batch,3,height,width", "float"),
        ("batch,samples", "int64"),
    ],
)
def test_what_no_convolution_reads_is_left(shape: str, kind: str) -> None:
    bound = _bound(shape, "y = Abs(x)", kind)
    assert bound is not None
    assert set(bound) <= {1, 3}


def test_the_name_of_an_input_counts_but_for_its_batch() -> None:
    body = "y = Exp({})"
    assert _bound("a,b", body.format("samples"), name="samples") == (1, 16_000)
    assert _bound("a", body.format("samples"), name="samples") == (1,)


def test_a_mask_is_no_sound() -> None:
    assert _bound("b,n", SOUND.format(x="mask"), kernel="4,1,8", name="mask") == (1, 1)
