from __future__ import annotations

import pytest

from samba_onnx.passes.planning.plan import GraphPlan
from samba_onnx.pef.manifest import (
    Boundary,
    Call,
    Cause,
    Fallback,
    FallbackNode,
    Graph,
    Region,
    Section,
    Symbol,
)
from samba_onnx.pef.stage_records import SectionTime
from samba_onnx.program.kinds import SectionType, SymbolKind
from tests.passes.planning.planned import DOWN, UP, brief, copy, made


def symbols(found: GraphPlan) -> dict[str, Symbol]:
    return {symbol.name: symbol for symbol in found.symbols}


SAMPLE = """g (float[4,8] x, float[4,2] z) => (float[4,2] y, float[4,8] c)
<
    float[8,2] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16},
    float[2] b = {1, 2},
    int64[2] s = {4, 2}
>
{
    a = Relu (x)
    c = Cos (a)
    d = Add (c, a)
    e = MatMul (d, w)
    f = Reshape (e, s)
    y = Add (f, b)
}"""


def test_the_whole_plan_of_a_small_graph() -> None:
    found = made(SAMPLE)
    down, up = copy("a", 128, DOWN, Cause.FALLBACK, 1), copy("c", 128, UP, Cause.FALLBACK, 2)
    assert found.graph == Graph(
        name="forward",
        inputs=("x", "z"),
        outputs=("y", "c"),
        calls=(Call(0, 0), Call(1, 1), Call(2, 2)),
        load_transfers=(copy("w", 64, UP, Cause.WEIGHT), copy("b", 8, UP, Cause.WEIGHT)),
        run_transfers=(
            copy("x", 128, UP, Cause.INPUT, 0),
            down,
            up,
            copy("y", 32, DOWN, Cause.OUTPUT, 2),
        ),
        boundaries=(
            Boundary(0, 1, ("a",), 128, down.seconds),
            Boundary(1, 2, ("c",), 128, up.seconds),
        ),
    )
    assert found.sections == (
        Section(
            id=0,
            name="Relu",
            graph="forward",
            member="stages/000_FWD.onnx",
            inputs=("x",),
            outputs=("a",),
            weights=(),
            operators={"Relu": 1},
            operator_flops={"Relu": 32},
            type=SectionType.FWD,
            flops=32,
            bytes=256,
            seconds=256 / 2**40,
            sram_bytes=256,
            time=SectionTime(compute=32 / 2**40, off_chip=256 / 2**40),
        ),
        Section(
            id=2,
            name="Add..Add",
            graph="forward",
            member="stages/002_FWD.onnx",
            inputs=("c", "a"),
            outputs=("y",),
            weights=("w", "s", "b"),
            operators={"Add": 2, "MatMul": 1, "Reshape": 1},
            operator_flops={"Add": 32 + 8, "MatMul": 2 * 4 * 2 * 8},
            type=SectionType.FWD,
            flops=168,
            bytes=128 + 128 + 64 + 8 + 32,
            seconds=360 / 2**40,
            sram_bytes=64 + 8 + 3 * 128,
            time=SectionTime(compute=168 / 2**40, off_chip=360 / 2**40),
        ),
    )
    assert found.fallbacks == (
        Fallback(
            id=1,
            name="Cos",
            graph="forward",
            member="stages/001_cpu.onnx",
            inputs=("a",),
            outputs=("c",),
            weights=(),
            operators={"Cos": 1},
            operator_flops={"Cos": 32},
            type=SectionType.FWD,
            reasons=(
                FallbackNode(
                    "node_1",
                    "Cos",
                    "",
                    "operator",
                    "Cos is not supported",
                    "use another",
                    seconds=pytest.approx(0.2e-6 + 2 * 4 * 32 / 30e9, rel=1e-12),
                ),
            ),
            # The default host: a call, a node, and 32 floats read and written.
            seconds=pytest.approx(4e-6 + 0.2e-6 + 2 * 4 * 32 / 30e9, rel=1e-12),
        ),
    )
    f32, i64 = "tensor(float)", "tensor(int64)"
    assert found.symbols == (
        Symbol("x", SymbolKind.INPUT, f32, (4, 8), "x", bytes=128),
        Symbol("z", SymbolKind.INPUT, f32, (4, 2), "", bytes=32),
        Symbol("w", SymbolKind.WEIGHT, f32, (8, 2), "w", bytes=64),
        Symbol("s", SymbolKind.CONSTANT, i64, (2,), "", baked=True, bytes=16),
        Symbol("b", SymbolKind.WEIGHT, f32, (2,), "b", bytes=8),
        Symbol("a", SymbolKind.ACTIVATION, f32, (4, 8), "a", bytes=128),
        Symbol("c", SymbolKind.OUTPUT, f32, (4, 8), "c", bytes=128),
        Symbol("y", SymbolKind.OUTPUT, f32, (4, 2), "y", bytes=32),
    )
    assert found.regions == (
        Region("x", 128, "hbm"),
        Region("a", 128, "hbm", mutable=True),
        Region("c", 128, "hbm"),
        Region("y", 32, "hbm", mutable=True),
        Region("w", 64, "hbm"),
        Region("b", 8, "hbm"),
    )
    assert [number for number, _ in found.stages] == [0, 1, 2]
    assert (found.experimental, found.notes) == ({}, ())


def test_o0_moves_the_same_bytes_between_more_stages() -> None:
    one, many = made(SAMPLE), made(SAMPLE, level="o0")
    assert [s.name for s in many.sections] == ["Relu", "Add", "MatMul", "Reshape", "Add_2"]
    assert [(t.symbol, t.bytes) for t in one.graph.run_transfers] == [
        (t.symbol, t.bytes) for t in many.graph.run_transfers
    ]
    assert one.graph.load_transfers == many.graph.load_transfers
    assert {s.name for s in many.symbols} - {s.name for s in one.symbols} == {"d", "e", "f"}


# What the contract between compiler and emulator says of single cases.


def test_an_input_read_on_both_sides_is_copied_once() -> None:
    found = made("""g (float[4] x) => (float[4] y) {
        a = Cos (x)
        b = Add (a, x)
        y = Neg (b)
    }""")
    assert brief(found.graph.run_transfers) == [
        ("x", "up input", 1),
        ("a", "up fallback", 1),
        ("y", "down output", 1),
    ]


def test_an_output_that_a_fallback_has_read_is_on_the_host_already() -> None:
    found = made("g (float[4] x) => (float[4] r, float[4] y) { r = Relu (x) y = Cos (r) }")
    assert brief(found.graph.run_transfers) == [("x", "up input", 0), ("r", "down fallback", 1)]


def test_a_value_crosses_once_whatever_reads_it_later() -> None:
    found = made("""g (float[4] x) => (float[4] y) {
        r = Relu (x)
        a = Cos (r)
        b = Add (a, r)
        c = Cos (b)
        d = Add (c, a)
        e = Cos (d)
        y = Sum (e, a, r)
    }""")
    crossings = [t for t in found.graph.run_transfers if t.cause is Cause.FALLBACK]
    assert brief(tuple(crossings)) == [
        ("r", "down fallback", 1),
        ("a", "up fallback", 2),
        ("b", "down fallback", 3),
        ("c", "up fallback", 4),
        ("d", "down fallback", 5),
        ("e", "up fallback", 6),
    ]
    assert [s.inputs for s in found.sections] == [("x",), ("a", "r"), ("c", "a"), ("e", "a", "r")]


def test_copies_follow_the_order_of_a_stages_inputs() -> None:
    found = made("""g (float[4] x, float[4] z) => (float[4] y) {
        a = Cos (x)
        b = Cos (z)
        c = Neg (b)
        y = Add (a, c)
    }""")
    assert found.sections[0].inputs == ("b", "a")
    assert brief(found.graph.run_transfers)[:2] == [
        ("b", "up fallback", 1),
        ("a", "up fallback", 1),
    ]


def test_inputs_are_copied_in_the_order_of_the_graph() -> None:
    found = made("""g (float[4] x, float[4] host, float[4] z) => (float[4] y, float[4] h) {
        a = Neg (z)
        b = Cos (a)
        h = Cos (host)
        y = Add (b, x)
    }""")
    assert brief(found.graph.run_transfers)[:2] == [("x", "up input", 2), ("z", "up input", 0)]
    assert symbols(found)["host"].region == ""


@pytest.mark.parametrize("level", ["o0", "o3"])
def test_outputs_that_are_inputs_or_weights_move_nothing(level: str) -> None:
    found = made(
        """g (float[4] x) => (float[4] x2, float[4] w) <float[4] w = {1, 2, 3, 4}> {
            x2 = Relu (x)
        }""",
        level=level,
    )
    assert found.graph.outputs == ("x2", "w")
    assert brief(found.graph.run_transfers) == [("x", "up input", 0), ("x2", "down output", 0)]
    assert found.graph.load_transfers == ()
    assert symbols(found)["w"] == Symbol("w", SymbolKind.WEIGHT, "tensor(float)", (4,), bytes=16)


def test_a_graph_without_nodes() -> None:
    found = made("g (float[4] x) => (float[4] x, float[4] w) <float[4] w = {1, 2, 3, 4}> {}")
    assert found.graph.calls == found.graph.run_transfers == found.regions == found.stages == ()
    assert [symbol.name for symbol in found.symbols] == ["x", "w"]


def test_a_graph_without_inputs() -> None:
    found = made("g () => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Relu (w) }")
    assert brief(found.graph.load_transfers) == [("w", "up weight", None)]
    assert brief(found.graph.run_transfers) == [("y", "down output", 0)]


def test_an_output_named_twice_is_copied_once() -> None:
    found = made("g (float[4] x) => (float[4] y, float[4] y) { y = Relu (x) }")
    assert found.graph.outputs == ("y", "y")
    assert found.sections[0].outputs == ("y",)
    assert brief(found.graph.run_transfers) == [("x", "up input", 0), ("y", "down output", 0)]


def test_weights_of_fallbacks_stay_on_the_host() -> None:
    found = made(
        """g (float[4] x) => (float[4] y)
        <float[4] w = {1, 2, 3, 4}, float[4] host = {1, 2, 3, 4}> {
            a = Add (x, w)
            b = Mul (a, host)
            c = Mul (b, w)
            y = Neg (c)
        }""",
        cpu=("Mul",),
    )
    assert found.fallbacks[0].weights == ("host", "w")
    assert brief(found.graph.load_transfers) == [("w", "up weight", None)]
    assert symbols(found)["host"].region == ""


def test_a_static_operand_is_baked_unless_a_section_reads_it_as_data() -> None:
    text = """g (float[4] x, int64[2] k) => (float[2,2] y, int64[2] z)
    <int64[2] s = {2, 2}, int64[2] t = {2, 2}> {
        a = Reshape (x, s)
        y = Reshape (a, t)
        z = Add (k, t)
    }"""
    found = made(text)
    assert (symbols(found)["s"].baked, symbols(found)["t"].baked) == (True, False)
    assert brief(found.graph.load_transfers) == [("t", "up constant", None)]
    # On the CPU the addition reads the host's copy: nothing needs loading.
    hosted = made(text, cpu=("Add",))
    assert symbols(hosted)["t"].baked
    assert hosted.graph.load_transfers == ()


def test_an_initializer_that_is_an_input_is_an_input() -> None:
    found = made("""g (float[4] x, float[4] w) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
        y = Add (x, w)
    }""")
    assert symbols(found)["w"].kind is SymbolKind.INPUT
    assert found.sections[0].inputs == ("x", "w")
    assert found.graph.load_transfers == ()


def test_values_and_weights_that_bodies_read_are_inputs_and_weights() -> None:
    found = made(
        """g (float[4] x, bool c) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
            a = Relu (x)
            b = If (c) <
                then_branch = t () => (float[4] o) { o = Add (a, w) },
                else_branch = e () => (float[4] p) <float[4] own = {1, 2, 3, 4}> {
                    p = Mul (x, own)
                }
            >
            y = Relu (b)
        }""",
        cpu=("If",),
    )
    assert found.fallbacks[0].inputs == ("c", "a", "x")
    assert found.fallbacks[0].weights == ("w",)
    assert brief(found.graph.run_transfers) == [
        ("x", "up input", 0),
        ("a", "down fallback", 1),
        ("b", "up fallback", 2),
        ("y", "down output", 2),
    ]
    assert "own" not in symbols(found)


def test_results_that_nobody_reads() -> None:
    found = made(
        """g (float[8] x) => (float[4] y) {
            y, rest = Split <num_outputs = 2> (x)
            dead = Relu (x)
        }""",
        level="o0",
    )
    # A section needs an output to be a model; that of Split is read, so "rest" is none.
    assert [section.outputs for section in found.sections] == [("y",), ("dead",)]
    assert brief(found.graph.run_transfers) == [("x", "up input", 0), ("y", "down output", 0)]


def test_omitted_operands_and_results() -> None:
    found = made(
        """g (float[4] x, float h) => (float[4] y) {
            a = Clip (x, , h)
            y, mask = Dropout (a)
        }"""
    )
    assert found.sections[0].inputs == ("x", "h")
    assert found.sections[0].outputs == ("y",)


def test_sequences_and_dynamic_values_pass_between_fallbacks_without_a_copy() -> None:
    found = made(
        """g (float[4] x, seq(float[n]) q) => (float[n] y, float[4] z) {
            r = SequenceInsert (q, x)
            z = Relu (x)
            s = SequenceInsert (r, z)
            y = ConcatFromSequence <axis = 0> (s)
        }""",
        cpu=("SequenceInsert", "ConcatFromSequence"),
    )
    assert brief(found.graph.run_transfers) == [("x", "up input", 0), ("z", "down fallback", 1)]
    kinds = {s.name: (s.type, s.shape, s.bytes, s.region) for s in found.symbols}
    assert kinds["q"] == ("seq(tensor(float))", None, None, "")
    assert kinds["y"] == ("tensor(float)", ("n",), None, "")


def test_a_value_without_a_known_type_has_an_empty_one() -> None:
    found = made("g (float[4] x) => (y) { y = com.example.Odd (x) }", cpu=("Odd",))
    assert (symbols(found)["y"].type, symbols(found)["y"].shape) == ("", None)
    assert found.fallbacks[0].operators == {"com.example::Odd": 1}


def test_packed_types_have_packed_sizes() -> None:
    found = made("g (int4[3] x) => (int4[3] y) { y = Identity (x) }")
    assert [t.bytes for t in found.graph.run_transfers] == [2, 2]
