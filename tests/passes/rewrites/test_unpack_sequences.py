from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.infer_shapes import InferShapesPass
from samba_onnx.passes.rewrites.unpack_sequences import UnpackSequencesPass
from tests.passes.rewrites.applying import check, numbers, operators, parse
from tests.versions import needs

HEAD = "g (float[2,7] x, float[2,7] w, int64 at) => (float[a,b] y, float[c,d] z)"
CONSTANTS = """<int64 zero = {0}, int64 last = {-1}, int64 far = {9}, int64 three = {3},
int64[2] sizes = {5, 2}>"""


def unpacked(body: str, *, modified: bool = True, outputs: str = "") -> list[str]:
    model = parse(f"{outputs or HEAD} {CONSTANTS} {{ {body} }}")
    InferShapesPass()(model)
    inputs = [numbers(2, 7), numbers(2, 7, seed=1), np.array(0)]
    check(model, UnpackSequencesPass(), inputs=inputs, modified=modified)
    return operators(model)


@pytest.mark.parametrize("split", ["x, sizes", "x, three"])
def test_pieces_of_known_sizes_become_a_split(split: str) -> None:
    body = (
        f"s = SplitToSequence<axis=1>({split})\n a = SequenceAt(s, zero)\n b = SequenceAt(s, last)"
    )
    assert unpacked(f"{body}\n y = Neg(a)\n z = Neg(b)") == ["Split", "Neg", "Neg"]


@pytest.mark.parametrize(("keepdims", "squeezes"), [(0, 2), (1, 0)])
def test_pieces_of_one_element_lose_their_axis_if_they_are_told_to(
    keepdims: int, squeezes: int
) -> None:
    rank = "float[b]" if squeezes else "float[a,b]"
    head = HEAD.replace("float[a,b]", rank).replace("float[c,d]", rank.replace("b", "c"))
    body = f"""s = SplitToSequence<axis=1, keepdims={keepdims}>(x)
 y = SequenceAt(s, zero)
 z = SequenceAt(s, last)"""
    model = parse(f"{head} {CONSTANTS} {{ {body} }}")
    InferShapesPass()(model)
    inputs = [numbers(2, 7), numbers(2, 7, seed=1), np.array(0)]
    check(model, UnpackSequencesPass(), inputs=inputs)
    assert operators(model).count("Squeeze") == squeezes


@pytest.mark.parametrize(
    "body",
    [
        "s = SplitToSequence<axis=1>(x, sizes)\n y = SequenceAt(s, at)\n z = Neg(x)",
        "s = SplitToSequence<axis=1>(x, sizes)\n n = SequenceLength(s)\n a = SequenceAt(s, zero)\n c = CastLike(n, x)\n y = Mul(a, c)\n z = Neg(x)",
        "s = SequenceConstruct(x, w)\n y = SequenceAt(s, at)\n z = Neg(x)",
    ],
)
def test_what_is_not_known_stays(body: str) -> None:
    assert "SequenceAt" in unpacked(body, modified=False)


def test_a_place_beyond_the_sequence_stays_an_error_of_the_device() -> None:
    body = "s = SplitToSequence<axis=1>(x, sizes)\n y = SequenceAt(s, far)\n z = Neg(x)"
    model = parse(f"{HEAD} {CONSTANTS} {{ {body} }}")
    InferShapesPass()(model)
    assert not UnpackSequencesPass()(model).modified


def test_listed_tensors_are_taken_and_joined_directly() -> None:
    body = "s = SequenceConstruct(x, w)\n t = SequenceAt(s, last)\n y = Neg(t)\n"
    assert unpacked(f"{body} z = ConcatFromSequence<axis=1>(s)") == [
        "SequenceConstruct",
        "Neg",
        "Concat",
    ]
    head = HEAD.replace("float[c,d]", "float[c,d,e]")
    stacked = f"{body} z = ConcatFromSequence<axis=1, new_axis=1>(s)"
    assert unpacked(stacked, outputs=head)[-3:] == ["Unsqueeze", "Unsqueeze", "Concat"]


KNOWN = "<int64[2] sizes = {5, 2}, int64 one = {1}, int64 zero = {0}, int64 least = {-2}>"


@pytest.mark.parametrize(
    "body",
    [
        "y = SequenceAt(s, zero)\n z = SequenceAt(t, at)",
        "y = ConcatFromSequence<axis=1>(s)\n u = SequenceInsert(t, x)\n z = ConcatFromSequence<axis=1>(u)",
        "p = SplitToSequence<axis=1>(x, sizes)\n y = SequenceAt(p, zero)\n"
        " q = SplitToSequence<axis=1>(w, sizes)\n z = SequenceAt(q, at)",
    ],
)  # fmt: skip
def test_one_of_several_is_unpacked(body: str) -> None:
    made = "s = SequenceConstruct(x, w)\n t = SequenceConstruct(w, x)"
    unpacked(f"{made}\n {body}")


def pieces(source: str, split: str, body: str, constants: str = KNOWN) -> ir.Model:
    """Return a model with one sequence, unpacked where it can be."""
    model = parse(f"g (float[{source}] x, int64 at) => (y, z) {constants} {{ {split}\n {body} }}")
    InferShapesPass()(model)
    UnpackSequencesPass()(model)
    return model


BOTH = "a = SequenceAt(s, zero)\n b = SequenceAt(s, one)\n y = Neg(a)\n z = Neg(b)"


@pytest.mark.parametrize(
    ("source", "split", "axis", "shapes"),
    [
        ("7,3", "s = SplitToSequence(x, sizes)", 0, [[5, 3], [2, 3]]),
        ("2,7,3,4", "s = SplitToSequence<axis=1>(x, sizes)", 1, [[2, 5, 3, 4], [2, 2, 3, 4]]),
        ("2,7", "s = SplitToSequence<axis=-1>(x, sizes)", 1, [[2, 5], [2, 2]]),
        ("7", "s = SplitToSequence<axis=-1>(x, sizes)", 0, [[5], [2]]),
        ("7,3", "s = SplitToSequence<keepdims=0>(x, sizes)", 0, [[5, 3], [2, 3]]),
        ("2,3", "s = SplitToSequence(x)", 0, [[1, 3], [1, 3]]),
    ],
)
def test_pieces_have_their_shapes(
    source: str, split: str, axis: int, shapes: list[list[int]]
) -> None:
    model = pieces(source, split, BOTH)
    assert operators(model) == ["Split", "Neg", "Neg"]
    node = model.graph[0]
    assert node.attributes["axis"].as_int() == axis
    assert [value.shape for value in node.outputs] == [ir.Shape(shape) for shape in shapes]
    assert {value.dtype for value in node.outputs} == {ir.DataType.FLOAT}


def test_a_place_is_counted_from_either_end() -> None:
    model = pieces(
        "7,3", "s = SplitToSequence(x, sizes)", "y = SequenceAt(s, least)\n z = SequenceAt(s, one)"
    )
    assert operators(model) == ["Split"]


@pytest.mark.parametrize(
    ("source", "constants", "count"),
    [
        ("1024,2", KNOWN, 1024),
        ("1025,2", KNOWN, None),
        ("2048,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {2}"), 1024),
        ("2049,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {2}"), None),
        ("2,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {1}"), 2),
        pytest.param(
            *("2,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {0}"), None),
            marks=needs("onnx", "1.23"),
        ),
        ("0,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {1}"), None),
        ("N,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {1}"), None),
        ("2,2", KNOWN.replace("{5, 2}", "{1, 1}"), 2),
        ("2,2", KNOWN.replace("{5, 2}", "{2, 0}"), None),
        ("0,2", KNOWN.replace("int64[2] sizes = {5, 2}", "int64[1] sizes = {0}"), None),
    ],
)
def test_how_many_pieces_there_may_be(source: str, constants: str, count: int | None) -> None:
    sizes = "" if constants is KNOWN else ", sizes"
    model = pieces(
        source, f"s = SplitToSequence(x{sizes})", "y = SequenceAt(s, zero)\n z = Neg(x)", constants
    )
    split = model.graph[0]
    assert split.op_type == ("SplitToSequence" if count is None else "Split")
    assert len(split.outputs) == (count or 1)


def test_one_piece_is_all_there_is() -> None:
    constants = KNOWN.replace("int64[2] sizes = {5, 2}", "int64 sizes = {4}")
    body = "y = SequenceAt(s, zero)\n z = Neg(x)"
    model = pieces("1,2", "s = SplitToSequence(x, sizes)", body, constants)
    assert operators(model) == ["Split", "Neg"]


@pytest.mark.parametrize("place", ["one", "three"])
def test_a_place_behind_the_last_piece_stays(place: str) -> None:
    constants = "<int64[1] sizes = {7}, int64 one = {1}, int64 three = {3}>"
    body = f"y = SequenceAt(s, {place})\n z = Neg(x)"
    assert operators(pieces("7,3", "s = SplitToSequence(x, sizes)", body, constants))[0] == (
        "SplitToSequence"
    )


def test_a_sequence_that_is_an_output_stays() -> None:
    model = parse(
        f"g (float[7,3] x) => (y, seq(float[a,3]) s) {KNOWN}"
        "{ s = SplitToSequence(x, sizes)\n y = SequenceAt(s, zero) }"
    )
    InferShapesPass()(model)
    assert not UnpackSequencesPass()(model).modified


def test_new_values_are_named_after_the_result() -> None:
    model = pieces(
        "2,3",
        "s = SequenceConstruct(x, x)",
        "y = ConcatFromSequence<axis=0, new_axis=1>(s)\n z = Neg(x)",
    )
    wide = [node.outputs[0] for node in model.graph if node.op_type == "Unsqueeze"]
    assert [(value.name, value.dtype) for value in wide] == [
        ("y_0", ir.DataType.FLOAT),
        ("y_1", ir.DataType.FLOAT),
    ]


@pytest.mark.parametrize(("place", "modified"), [(-3, False), (-2, True), (2, True), (3, False)])
def test_nothing_is_inserted_beyond_a_sequence(place: int, modified: bool) -> None:
    model = parse(f"""g (float[2] x) => (float[6] y) <int64 p = {{{place}}}> {{
  s = SequenceConstruct(x, x)
  t = SequenceInsert(s, x, p)
  y = ConcatFromSequence<axis = 0>(t)
}}""")
    assert UnpackSequencesPass()(model).modified == modified


@pytest.mark.parametrize(
    "body",
    [
        "t = SequenceInsert(s, x)\n u = SequenceInsert(s, x, far)\n l = SequenceLength(u)",
        "t = ConcatFromSequence<axis = 0>(s)\n u = ConcatFromSequence<axis = 0>(q)\n l = Size(u)",
    ],
)
def test_a_node_that_stays_does_not_hide_that_others_went(body: str) -> None:
    model = parse(f"""g (float[2] x, seq(float[2]) q) => (int64 l) <int64 far = {{9}}> {{
  s = SequenceConstruct(x, x)
  {body}
}}""")
    assert UnpackSequencesPass()(model).modified
