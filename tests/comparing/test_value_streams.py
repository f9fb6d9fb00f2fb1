"""The pieces of a comparison of values: what runs on what, which values count, and what is dropped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from samba_onnx.comparing import value_comparison
from samba_onnx.comparing.compared_values import ComparedValue
from samba_onnx.comparing.doubtful_values import DoubtfulValues
from samba_onnx.comparing.expectations import ChosenTolerances
from samba_onnx.comparing.pieces import ModelPieces
from samba_onnx.comparing.value_comparison import (
    _feeds,
    _forget,
    _graph,
    _refuse_other_model,
    _Stream,
    compare_values,
    read_source,
)
from samba_onnx.comparing.walk import Walk
from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.program.source_location import STACK_TRACE

GRAPHS = tuple(SimpleNamespace(name=name) for name in ("first", "second"))
PEF: Any = SimpleNamespace(
    path="m.pef", manifest=SimpleNamespace(graphs=GRAPHS, metadata={}, fixed_inputs=())
)


def test_what_is_asked_for_reaches_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, tuple[Any, ...]] = {}

    def noted(name: str, answer: Any) -> Any:
        def call(*arguments: Any) -> Any:
            made[name] = arguments
            return answer

        monkeypatch.setattr(value_comparison, name, call)

    def stream(*arguments: Any) -> Any:
        made["_Stream"] = arguments
        return SimpleNamespace(first_answer=lambda trials, progress: (trials, progress))

    loaded = SimpleNamespace(model="ir", source=lambda model: "source")
    noted("refuse_several", None)
    noted("load_model", loaded)
    noted("_graph", "graph")
    noted("_refuse_other_model", None)
    noted("read_source", (onnx.ModelProto(), "folder"))
    noted("plain_engine", "engine")
    noted("_feeds", "feeds")
    noted("BothSides", "sides")
    monkeypatch.setattr(value_comparison, "_Stream", stream)
    result: Any = compare_values("model", PEF)
    assert result == ("feeds", value_comparison._ignore)
    assert made["_feeds"] == (PEF, "graph", loaded, None, 0)
    assert made["_graph"] == (PEF, None)
    assert made["plain_engine"] == (None, ())
    assert made["_Stream"] == ("sides", "graph", ChosenTolerances(), "ir", None)

    def look(value: Any, content: Any) -> None:
        """See nothing."""

    inputs = {"x": 1}
    result = compare_values("model", PEF, inputs=inputs, seed=5, rtol=0.5, atol=0.25, threads=3, custom_ops=["lib"], progress=max, look=look)  # type: ignore[arg-type]  # fmt: skip
    assert result == ("feeds", max)
    assert made["_feeds"] == (PEF, "graph", loaded, inputs, 5)
    assert made["_graph"] == (PEF, inputs)
    assert made["plain_engine"] == (3, ["lib"])
    assert made["_Stream"] == ("sides", "graph", ChosenTolerances(0.5, 0.25), "ir", look)


def test_random_inputs_have_the_ranges_of_the_graph_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(value_comparison, "input_specs", lambda pef, graph: f"specs of {graph}")
    shown = SimpleNamespace(or_else=lambda other: ("ranges", other))
    monkeypatch.setattr(value_comparison, "input_ranges", lambda graph: shown)
    monkeypatch.setattr(value_comparison, "pef_ranges", lambda pef, graph: f"of {graph}")
    monkeypatch.setattr(value_comparison, "random_inputs", lambda *arguments: {"drawn": arguments})
    loaded: Any = SimpleNamespace(model=SimpleNamespace(graph=None))
    graph: Any = "one"
    assert _feeds(PEF, graph, loaded, None, 5) == [
        ("random inputs of seed 5", {"drawn": ("specs of one", 5, ("ranges", "of one"))}),
        ("random inputs of seed 5, integers 0 and 1", {"drawn": ("specs of one", 5)}),
    ]
    assert _feeds(PEF, graph, loaded, {"x": 1}, 5) == [("the inputs given", {"x": 1})]


@pytest.mark.parametrize(
    ("several", "inputs", "name"),
    [(True, {"x": 1}, "fitting"), (True, None, "first"), (False, {"x": 1}, "first")],
)
def test_inputs_choose_the_graph(
    several: bool, inputs: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sizes:
        def __init__(self, manifest: Any) -> None: ...

        def __bool__(self) -> bool:
            return several

        def fitting(self, inputs: Any) -> Any:
            return SimpleNamespace(name="fitting")

    monkeypatch.setattr(value_comparison, "SizedGraphs", Sizes)
    assert _graph(PEF, inputs).name == name


def test_outputs_must_have_the_names_that_the_model_gives_them() -> None:
    graph: Any = SimpleNamespace(
        outputs=("m__y",), model_name=lambda name: name.removeprefix("m__")
    )

    def model(*names: str) -> Any:
        return SimpleNamespace(
            graph=SimpleNamespace(outputs=[SimpleNamespace(name=n) for n in names])
        )

    _refuse_other_model(PEF, graph, model("y"))
    with pytest.raises(UsageError, match=r"^m\.pef has outputs \['y'\], the model has \['z'\]: "):
        _refuse_other_model(PEF, graph, model("z"))


def test_data_beside_a_model_stays_there(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Add(x, w) }'
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    assert read_source(proto) == (proto, "")
    path = tmp_path / "g.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="g.data", size_threshold=0)
    read, folder = read_source(path)
    assert folder == str(tmp_path)
    assert read.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL


def test_values_that_no_later_piece_reads_are_dropped() -> None:
    values = dict.fromkeys(("never", "first", "second", "third"), 0)
    _forget(values, {"first": 0, "second": 1, "third": 2}, 0)
    assert list(values) == ["second", "third"]
    _forget(values, {"first": 0, "second": 1, "third": 2}, 1)
    assert list(values) == ["third"]


def stream(**members: Any) -> Any:
    """Return a comparison of which only some members are there."""
    one = object.__new__(_Stream)
    vars(one).update(members)
    return one


def test_the_first_inputs_that_both_sides_take_count(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    refused: set[str] = set()

    def compare(self: Any, feeds: Any, progress: Any) -> Any:
        tried.append(feeds)
        if feeds in refused:
            raise ExecutionError(feeds)
        return [feeds]

    monkeypatch.setattr(_Stream, "compare", compare)
    monkeypatch.setattr(_Stream, "result", lambda self, *arguments: arguments)
    trials: Any = [("one", "1"), ("two", "2"), ("three", "3")]
    for expected in "123":
        tried.clear()
        names = dict(map(reversed, trials))  # type: ignore[arg-type]
        answer = stream(_doubts=DoubtfulValues(None)).first_answer(trials, print)
        assert answer == ([expected], names[expected], expected)
        assert tried == list("123"[: int(expected)])
        refused.add(expected)
    with pytest.raises(ExecutionError, match="3"):
        stream(_doubts=DoubtfulValues(None)).first_answer(trials, print)
    refused.clear()
    assert stream(_doubts=DoubtfulValues(None)).first_answer(trials[:1], print) == (
        ["1"],
        "one",
        "1",
    )


PIECES = """<ir_version: 10, opset_import: ["" : 21, "mine": 1]> g (float[2] x) => (float[2] y)
{ q = Relu(x) b = mine.Swirl(q) c = Exp(b) unread = Neg(x) y = Add(c, q) }"""


def compared(stage: Any, names: str, expected: Any, actual: Any, verdicts: Any) -> list[Any]:
    values: list[ComparedValue] = stage._judged(7, names, expected, actual, verdicts)
    return values


def test_each_value_is_told_with_its_node_and_whether_its_operands_agree() -> None:
    pieces = ModelPieces(onnx.parser.parse_model(PIECES))
    for number, node in enumerate(pieces.nodes):
        node.name = f"node_{number}"
    right = np.array([1.0, 2.0], np.float32)
    looks: list[Any] = []
    one = stream(
        _sides=SimpleNamespace(original=pieces),
        _limits=ChosenTolerances(),
        _depth=1,
        _coarser=1.0,
        _zeros={"q": 0.0},
        _nodes={},
        _doubts=DoubtfulValues(lambda *look: looks.append(look), final=True),
    )
    expected = {"q": right, "b": [right], "c": right, "y": right}
    actual = {**expected, "b": [right * 2], "y": right}
    walk = Walk[str]()
    values = compared(one, "ycbq", expected, actual, walk)
    assert walk.first is not None
    assert walk.first.suspects == ("b",)
    assert [value.name for value in values] == ["q", "b", "c", "y"]
    assert [value.position for value in values] == [0, 1, 2, 4]
    assert [value.node for value in values] == ["node_0", "node_1", "node_2", "node_4"]
    assert [value.operator for value in values] == ["Relu", "mine::Swirl", "Exp", "Add"]
    assert [value.dtype for value in values] == ["float32", "", "float32", "float32"]
    assert [value.passed for value in values] == [True, False, True, True]
    assert [value.operands_agree for value in values] == [True, True, False, True]
    assert {value.stage for value in values} == {7}
    assert {value.location for value in values} == {""}
    assert [look[0] for look in looks] == values
    assert [look[1] is actual[look[0].name] for look in looks] == [True] * 4
    one._look, one._coarser = None, 8.0
    near = {"q": right * np.float32(1 + 2.0**-7)}
    assert compared(one, "q", expected, near, Walk[str]())[0].passed
    one._coarser = 1.0
    assert not compared(one, "q", expected, near, Walk[str]())[0].passed
    one._coarser = 8.0
    steps, off = np.array([5, 50], np.int8), {"q": np.array([6, 49], np.int8)}
    assert compared(one, "q", {"q": steps}, off, Walk[str]())[0].passed
    one._zeros = {}
    assert not compared(one, "q", {"q": steps}, off, Walk[str]())[0].passed


def test_values_that_nothing_reads_are_not_counted() -> None:
    pieces = ModelPieces(onnx.parser.parse_model(PIECES))
    sides = SimpleNamespace(original=pieces, pef=PEF)
    one = stream(_sides=sides, _graph=GRAPHS[1], own=3)
    both: Any = [SimpleNamespace(name=n, position=i) for i, n in enumerate(("q", "unread"))]
    result = one.result(both, "some inputs", {"x": 1})
    assert (result.graph, result.values, result.own) == ("second", tuple(both), 3)
    assert result.total == 5  # q, b, c, y, and what is compared although nothing reads it
    assert result.gone == {"mine::Swirl": 1, "Exp": 1, "Add": 1}
    assert (result.inputs, result.feeds) == ("some inputs", {"x": 1})
    with pytest.raises(UsageError, match=r"^m\.pef has no value of the model: compare takes"):
        one.result([], "", {})
    empty = ModelPieces(onnx.parser.parse_model(PIECES.replace("y = Add(c, q)", "y = Neg(x)")))
    del empty.nodes[:], empty.reads[:]
    empty.makers.clear()
    sides.original = empty
    assert one.result([], "", {}).total == 0


def test_lines_are_the_users() -> None:
    node = ir.node("Relu", [ir.val("x")])
    node.metadata_props[STACK_TRACE] = 'File "mine.py", line 7, in forward\n    y = x.relu()\n'
    one = stream(_nodes={"q": node})
    assert one._location("q") == "mine.py:7"
    assert one._location("z") == ""
