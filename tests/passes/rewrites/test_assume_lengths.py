"""Lengths of sequences that nobody states."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from samba_onnx.passes.rewrites.assume_lengths import AssumeLengthsPass
from samba_onnx.passes.rewrites.bind_dimensions import ASSUMED, LENGTHS, BindDimensionsPass
from samba_onnx.passes.rewrites.interface import dimensions


def _model(graph: str) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')


def _bound(model: ir.Model, **dims: int) -> list[tuple[object, ...] | None]:
    """Run both passes, and return the shapes of the inputs."""
    assert not AssumeLengthsPass(dims, {}, 1)(model).modified
    BindDimensionsPass(dims, {}, 1)(model)
    return [dimensions(value.shape) for value in model.graph.inputs]


def _table(name: str, *shape: int) -> str:
    size = 1
    for each in shape:
        size *= each
    numbers = ", ".join(["0.5"] * size)
    return f"float[{','.join(map(str, shape))}] {name} = {{{numbers}}}"


BERT = """g (int64[{ids}] ids, int64[{mask}] mask) => (float[a,b,4] y) <{words}, {places}> {{
    i = Cast<to: int = 7>(ids)
    w = Gather(words, i)
    one = Constant<value_int: int = 1>()
    axis = Constant<value_ints: ints = [1]>()
    zero = Constant<value_ints: ints = [0]>()
    shape = Shape<start: int = 1>(ids)
    p = Slice(positions, zero, shape, zero)
    s = Add(w, p)
    m = Cast<to: int = 1>(mask)
    u = Unsqueeze(m, minus)
    y = Mul(s, u)
}}"""


def _bert(ids: str, mask: str, rows: int) -> ir.Model:
    words, places = _table("words", 9, 4), _table("positions", rows, 4)
    text = BERT.format(ids=ids, mask=mask, words=f"{words}, int64[1] minus = {{-1}}", places=places)
    return _model(text)


@pytest.mark.parametrize(
    ("ids", "mask", "rows", "length"),
    [
        ("batch,sequence", "batch,sequence", 64, 64),
        # By use, whatever the name, and without one.
        ("s0,s1", "s0,s1", 64, 64),
        ("?,?", "?,?", 64, 64),
        # Two rows more than positions, as for padding.
        ("batch,sequence", "batch,sequence", 66, 64),
        ("batch,sequence", "batch,sequence", 2050, 1024),
    ],
)
def test_as_many_as_the_table_of_positions_has(ids: str, mask: str, rows: int, length: int) -> None:
    model = _bert(ids, mask, rows)
    assert _bound(model) == [(1, length), (1, length)]
    assert set(model.meta[ASSUMED].values()) == {1, length}


def test_what_is_stated_counts() -> None:
    model = _bert("batch,sequence", "batch,sequence", 64)
    assert _bound(model, sequence=7, batch=2) == [(2, 7), (2, 7)]
    assert model.meta[ASSUMED] == {}


@pytest.mark.parametrize("name", ["sequence_length", "num_tokens", "time", "n_frames", "seq"])
def test_a_name_is_enough_and_has_a_default(name: str) -> None:
    model = _model(f"g (float[batch,{name},8] x) => (float[a,b,8] y) {{ y = Relu(x) }}")
    assert _bound(model) == [(1, 128, 8)]
    assert model.meta[ASSUMED] == {"batch": 1, name: 128}


@pytest.mark.parametrize("shape", ["batch,3,height,width", "frames,3,8,8", "batch,features", "n"])
def test_what_is_no_sequence_is_none(shape: str) -> None:
    model = _model(f"g (float[{shape}] x) => (float[a] y) {{ y = Relu(x) }}")
    assert LENGTHS not in model.meta
    _bound(model)
    assert set(model.meta[ASSUMED].values()) == {1}
    assert LENGTHS not in model.meta


def test_integers_that_choose_no_rows_are_no_sequence() -> None:
    model = _model("g (int64[a,b] x) => (int64[a,b] y) { y = Neg(x) }")
    assert _bound(model) == [(1, 1)]


def test_lengths_that_make_a_node_impossible_are_none() -> None:
    # The product takes one element only, whatever the name says.
    model = _model(
        """g (float[batch,sequence,1] x) => (float[a,b] y) <float[1,4] w = {1.0, 2.0, 3.0, 4.0}> {
            f = Flatten(x)
            y = MatMul(f, w)
        }"""
    )
    assert _bound(model) == [(1, 1, 1)]
    assert model.meta[ASSUMED] == {"batch": 1, "sequence": 1}


CACHE = """g (int64[batch,sequence] ids, float[batch,2,past,4] past_key, int64[batch,{total}] attention_mask)
=> (float[a,b,c,4] y, int64[d,e] z) <{words}> {{
    w = Gather(words, ids)
    axes = Constant<value_ints: ints = [1]>()
    u = Unsqueeze(w, axes)
    k = Concat<axis: int = 1>(u, u)
    y = Concat<axis: int = 2>(past_key, k)
    z = Neg(attention_mask)
}}"""


@pytest.mark.parametrize("total", ["total_sequence_length", "mask_length"])
def test_with_a_cache_a_run_reads_one_element(total: str) -> None:
    model = _model(CACHE.format(total=total, words=_table("words", 9, 4)))
    assert _bound(model) == [(1, 1), (1, 2, 127, 4), (1, 128)]


@pytest.mark.parametrize(
    ("dims", "total"), [({}, 128), ({"past": 7, "sequence": 2}, 9), ({"past": 7}, 8)]
)
def test_a_name_that_is_a_sum_gets_the_sum(dims: dict[str, int], total: int) -> None:
    model = _model(CACHE.format(total="x", words=_table("words", 9, 4)))
    mask = model.graph.inputs[2]
    mask.shape = ir.Shape(["batch", "past + sequence"])
    assert _bound(model, **dims)[2] == (1, total)
    # What follows from what is stated is not assumed.
    assert ("past + sequence" in model.meta[ASSUMED]) == (len(dims) < 2)


def test_nothing_is_assumed_of_what_stays_dynamic() -> None:
    model = _bert("batch,sequence", "batch,sequence", 64)
    AssumeLengthsPass({}, {}, None)(model)
    assert LENGTHS not in model.meta


KERAS = """g (float[b,t] x) => (float[p,q,4] y) <{words}, int64 rows = {{9}}> {{
    i = Cast<to: int = 7>(x)
    j = Add(i, rows)
    y = Gather(words, j)
}}"""


def test_indices_may_be_of_any_type_and_counted_from_the_end() -> None:
    model = _model(KERAS.format(words=_table("words", 9, 4)))
    assert _bound(model) == [(1, 128)]


LSTM = """g (float[{shape}] x) => (float[a,1,c,1] y) <float[1,4,3] w, float[1,4,1] r> {{
    {transpose}
    y, h, s = LSTM<hidden_size: int = 1>({read}, w, r)
}}"""


@pytest.mark.parametrize(
    ("shape", "transpose", "read", "bound"),
    [
        ("p,q,3", "", "x", (128, 1, 3)),
        ("p,q,3", "t = Transpose<perm: ints = [1, 0, 2]>(x)", "t", (1, 128, 3)),
        ("?,?,3", "t = Transpose<perm: ints = [1, 0, 2]>(x)", "t", (1, 128, 3)),
        ("p,5,3", "t = Transpose<perm: ints = [1, 0, 2]>(x)", "t", (1, 5, 3)),
    ],
)
def test_steps_of_recurrent_layers_are_a_sequence(
    shape: str, transpose: str, read: str, bound: tuple[int, ...]
) -> None:
    text = LSTM.format(shape=shape, transpose=transpose, read=read)
    model = _model(
        text.replace(
            "<float[1,4,3] w, float[1,4,1] r>", f"<{_table('w', 1, 4, 3)}, {_table('r', 1, 4, 1)}>"
        )
    )
    assert _bound(model) == [bound]


def test_the_name_of_an_input_makes_no_sequence_of_its_batch() -> None:
    model = _model("g (float[?,8] tokens) => (float[a,8] y) { y = Relu(tokens) }")
    assert _bound(model) == [(1, 8)]


def test_what_an_encoder_read_is_whole_beside_a_cache() -> None:
    text = CACHE.format(total="total_length", words=_table("words", 9, 4))
    text = text.replace("attention_mask)", "attention_mask, float[batch,encoder_length,4] read)", 1)
    text = text.replace("int64[d,e] z)", "int64[d,e] z, float[f,g,4] v)", 1)
    model = _model(
        text.replace("z = Neg(attention_mask)", "z = Neg(attention_mask)\n    v = Neg(read)")
    )
    assert _bound(model)[3] == (1, 128, 4)


def test_a_buffer_of_positions_says_how_many_there_are() -> None:
    numbers = ", ".join(map(str, range(32)))
    model = _model(
        f"""g (int64[batch,sequence] ids) => (float[a,b,4] y, int64[1,32] z)
        <{_table("words", 9, 4)}, int64[1,32] position_ids = {{{numbers}}}> {{
            y = Gather(words, ids)
            z = Neg(position_ids)
        }}"""
    )
    assert _bound(model) == [(1, 32)]
