"""What a rule of a user's matches: edges, optional operators, context, options, priorities."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from samba_onnx.passes.planning.fusion.fusing import fuse
from samba_onnx.passes.planning.fusion.matching import Match, StepBudget, embeddings
from samba_onnx.passes.planning.fusion.units import Units
from samba_onnx.passes.planning.sectioning import sram_bytes
from samba_onnx.program.dataflow import Dataflow
from samba_onnx.program.fusion_marks import MARK
from tests.passes.planning.fusion.fused import groups, inferred, rules, sections
from tests.passes.planning.plan_samples import target

CHAIN = "g (float[4] x) => (y) { a = Abs(x) c = Relu(a) d = Neg(c) y = Exp(d) }"
FORK = "g (float[4] x) => (y, z) { a = Abs(x) c = Relu(a) d = Tanh(a) y = Add(c, d) z = Neg(c) }"


RELUS = "g (float[4] x) => (y) { a = Relu(x) b = Relu(a) c = Relu(b) y = Relu(c) }"
PAIR = (
    "pair: {priority: 1, pattern: {first: {op_type: relu, child: second}, second: {op_type: relu}}}"
)


def matched(folder: Path, text: str, graph: str) -> list[str]:
    return sections(graph, rules(folder, text))


def test_a_chain(tmp_path: Path) -> None:
    text = """
      two:
        priority: 1
        pattern:
          first: {op_type: relu, child: second}
          second: {op_type: neg}
    """
    assert matched(tmp_path, text, CHAIN) == ["Abs", "two: Relu Neg", "Exp"]
    assert matched(tmp_path, text.replace("neg", "exp"), CHAIN) == ["Abs", "Relu", "Neg", "Exp"]


def test_all_children_are_there(tmp_path: Path) -> None:
    text = """
      fork:
        priority: 1
        pattern:
          root: {op_type: abs, children: [left, right]}
          left: {op_type: relu}
          right: {op_type: tanh}
    """
    assert matched(tmp_path, text, FORK) == ["fork: Abs Relu Tanh", "Add", "Neg"]
    lacking = FORK.replace("d = Tanh(a)", "d = Tanh(x)")
    assert matched(tmp_path, text, lacking) == ["Abs", "Relu", "Tanh", "Add", "Neg"]


def test_two_operators_of_a_pattern_are_two_nodes(tmp_path: Path) -> None:
    text = """
      pair:
        priority: 1
        pattern:
          root: {op_type: abs, children: [left, right]}
          left: {op_type: relu}
          right: {op_type: relu}
    """
    graph = "g (float[4] x) => (y) { a = Abs(x) y = Relu(a) }"
    assert matched(tmp_path, text, graph) == ["Abs", "Relu"]


def test_optional_operators_are_taken_where_they_are(tmp_path: Path) -> None:
    text = """
      maybe:
        priority: 1
        pattern:
          before: {op_type: abs, required: false, child: first}
          first: {op_type: relu, child: between}
          between: {op_type: neg, required: false, child: last}
          last: {op_type: exp, child: after}
          after: {op_type: tanh, required: false}
    """
    assert matched(tmp_path, text, CHAIN) == ["maybe: Abs Relu Neg Exp"]
    short = "g (float[4] x) => (y) { a = Relu(x) y = Exp(a) }"
    assert matched(tmp_path, text, short) == ["maybe: Relu Exp"]
    # What is optional may be missing, but nothing may be in its place.
    other = "g (float[4] x) => (y) { a = Relu(x) c = Sqrt(a) y = Exp(c) }"
    assert matched(tmp_path, text, other) == ["Relu", "Sqrt", "Exp"]


def test_a_list_of_operators_is_any_of_them(tmp_path: Path) -> None:
    text = """
      any:
        priority: 1
        pattern:
          first: {op_type: [tanh, relu], child: second}
          second: {op_type: [exp, Neg]}
    """
    assert matched(tmp_path, text, CHAIN) == ["Abs", "any: Relu Neg", "Exp"]


def test_context_says_where_and_stays_outside(tmp_path: Path) -> None:
    text = """
      behind_relu:
        priority: 1
        pattern:
          context: {op_type: relu, included: false, child: first}
          first: {op_type: neg, child: second}
          second: {op_type: exp}
    """
    assert matched(tmp_path, text, CHAIN) == ["Abs", "Relu", "behind_relu: Neg Exp"]
    assert matched(tmp_path, text, CHAIN.replace("Relu", "Tanh")) == ["Abs", "Tanh", "Neg", "Exp"]


def test_context_may_be_part_of_another_section_or_run_on_the_cpu(tmp_path: Path) -> None:
    text = """
      first:
        priority: 2
        pattern: {a: {op_type: abs, child: r}, r: {op_type: relu}}
      second:
        priority: 1
        pattern: {r: {op_type: [relu, cos], included: false, child: n}, n: {op_type: neg, child: e}, e: {op_type: exp}}
    """
    assert matched(tmp_path, text, CHAIN) == ["first: Abs Relu", "second: Neg Exp"]
    on_cpu = CHAIN.replace("Relu", "Cos")
    assert matched(tmp_path, text, on_cpu) == ["Abs", "Cos", "second: Neg Exp"]


def test_the_first_option_that_matches(tmp_path: Path) -> None:
    text = """
      options:
        priority: 1
        pattern:
          first: {op_type: relu, child: either}
          either: {match_first_option: [split, plain]}
          split: {op_type: tanh, child: tail}
          tail: {op_type: sqrt}
          plain: {op_type: neg, child: end}
          end: {op_type: exp}
    """
    assert matched(tmp_path, text, CHAIN) == ["Abs", "options: Relu Neg Exp"]
    other = "g (float[4] x) => (y) { a = Relu(x) c = Tanh(a) y = Sqrt(c) }"
    assert matched(tmp_path, text, other) == ["options: Relu Tanh Sqrt"]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_greater_priority_wins(swapped: bool, tmp_path: Path) -> None:
    parts = [
        "early: {priority: 1, pattern: {a: {op_type: abs, child: b}, b: {op_type: relu}}}",
        "late: {priority: 2.5, pattern: {a: {op_type: relu, child: b}, b: {op_type: neg}}}",
    ]
    text = "\n".join(reversed(parts) if swapped else parts)
    assert matched(tmp_path, text, CHAIN) == ["Abs", "late: Relu Neg", "Exp"]


def test_of_equal_priorities_the_first_of_the_file_wins(tmp_path: Path) -> None:
    early = "early: {priority: 1, pattern: {a: {op_type: abs, child: b}, b: {op_type: relu}}}"
    late = "late: {priority: 1, pattern: {a: {op_type: relu, child: b}, b: {op_type: neg}}}"
    found = matched(tmp_path, f"{early}\n{late}", CHAIN)
    assert found == ["early: Abs Relu", "Neg", "Exp"]
    assert matched(tmp_path, f"{late}\n{early}", CHAIN) == ["Abs", "late: Relu Neg", "Exp"]


def test_a_rule_matches_every_place_once(tmp_path: Path) -> None:
    text = "two: {priority: 1, pattern: {a: {op_type: abs, child: b}, b: {op_type: abs}}}"
    chain = " ".join(f"v{i + 1} = Abs(v{i})" for i in range(5))
    found = matched(tmp_path, text, f"g (float[4] v0) => (v5) {{ {chain} }}")
    assert found == ["two: Abs Abs", "two: Abs Abs", "Abs"]


def test_sections_that_would_wait_for_each_other_are_not_made(tmp_path: Path) -> None:
    """Between the two operators of the pattern lies one that is not part of it."""
    text = "ends: {priority: 1, pattern: {a: {op_type: abs, child: s}, s: {op_type: add}}}"
    graph = "g (float[4] x) => (y) { a = Abs(x) t = Tanh(a) y = Add(a, t) }"
    assert matched(tmp_path, text, graph) == ["Abs", "Tanh", "Add"]
    beside = "g (float[4] x) => (y) { a = Abs(x) t = Tanh(x) y = Add(a, t) }"
    assert matched(tmp_path, text, beside) == ["Tanh", "ends: Abs Add"]


def test_two_sections_that_would_wait_for_each_other(tmp_path: Path) -> None:
    """Each is possible alone; together, either would read what the other writes."""
    text = """
      first: {priority: 2, pattern: {a: {op_type: abs, child: s}, s: {op_type: add}}}
      second: {priority: 1, pattern: {a: {op_type: sqrt, child: s}, s: {op_type: sub}}}
    """
    graph = """g (float[4] x, float[4] w) => (y, z) {
        a = Abs(x) c = Sqrt(w) y = Add(a, c) z = Sub(c, a) }"""
    assert matched(tmp_path, text, graph) == ["Sqrt", "first: Abs Add", "Sub"]
    other = text.replace("priority: 1", "priority: 3")
    assert matched(tmp_path, other, graph) == ["Abs", "second: Sqrt Sub", "Add"]


def test_a_match_does_not_reach_into_another_group(tmp_path: Path) -> None:
    text = "pair: {priority: 1, pattern: {a: {op_type: abs, child: s}, s: {op_type: add}}}"
    graph = "g (float[4] x) => (y) { a = Abs(x) c = Cos(a) y = Add(a, c) }"
    assert matched(tmp_path, text, graph) == ["Abs", "Cos", "Add"]


def test_what_no_graph_has_matches_nothing_and_a_note_says_so(tmp_path: Path) -> None:
    text = """
      lambda:
        priority: 1
        heuristic: {name: MHA, spatial_split_degree: 2}
        pattern: {a: {op_type: relu, child: b}, b: {op_type: zipmapreduce}}
    """
    found = rules(tmp_path, text)
    assert sections(CHAIN, found) == ["Abs", "Relu", "Neg", "Exp"]
    heuristics, unknown = found.notes
    assert "MHA(spatial_split_degree=2)" in heuristics
    assert "no effect" in heuristics
    assert "'lambda' names zipmapreduce" in unknown


def test_a_match_that_does_not_fit_on_the_chip_is_cut(tmp_path: Path) -> None:
    text = """
      all:
        priority: 1
        pattern: {a: {op_type: abs, child: b}, b: {op_type: relu, child: c}, c: {op_type: neg, child: d}, d: {op_type: exp}}
    """
    found = rules(tmp_path, text)
    (whole,) = groups(CHAIN, found)
    needed = sram_bytes(whole.nodes, target())
    pieces = groups(CHAIN, found, sram=needed - 1)
    assert len(pieces) > 1
    assert {piece.rule for piece in pieces} == {"all"}
    assert all(len(p.nodes) == 1 or sram_bytes(p.nodes, target()) < needed for p in pieces)


def test_a_search_without_end_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Thirty children of one kind fit in more ways than anybody can try, and the last is not there."""
    children = [f"c{i}" for i in range(30)]
    entries = "\n".join(f"          {name}: {{op_type: relu}}" for name in children)
    text = f"""
      wide:
        priority: 1
        pattern:
          root: {{op_type: abs, children: [{", ".join(children)}, last]}}
{entries}
          last: {{op_type: relu, child: end}}
          end: {{op_type: tanh}}
    """
    nodes = " ".join(f"v{i} = Relu(a)" for i in range(31))
    graph = f"g (float[4] x) => (v0, t) {{ a = Abs(x) {nodes} t = Tanh(x) }}"
    with caplog.at_level(logging.DEBUG):
        assert not any("wide" in section for section in matched(tmp_path, text, graph))
    assert "rule 'wide' fits in too many ways" in caplog.text


def test_the_answer_does_not_depend_on_the_order_of_independent_nodes(tmp_path: Path) -> None:
    text = "pair: {priority: 1, pattern: {a: {op_type: abs, child: s}, s: {op_type: relu}}}"
    one = "g (float[4] x) => (y, z) { a = Abs(x) t = Tanh(x) y = Relu(a) z = Neg(t) }"
    other = "g (float[4] x) => (y, z) { t = Tanh(x) a = Abs(x) z = Neg(t) y = Relu(a) }"
    assert sorted(matched(tmp_path, text, one)) == sorted(matched(tmp_path, text, other))
    assert len(inferred(one).graph) == 4


def test_a_chain_of_what_could_be_several_pairs_is_cut_from_its_beginning(tmp_path: Path) -> None:
    assert matched(tmp_path, PAIR, RELUS) == ["pair: Relu Relu", "pair: Relu Relu"]


def test_marks_come_before_rules(tmp_path: Path) -> None:
    nodes = list(inferred(RELUS).graph)
    for node, mark in zip(nodes, ("", "1:mine", "1:mine", ""), strict=True):
        if mark:
            node.metadata_props[MARK] = mark
    (pieces,) = fuse([nodes], [], rules(tmp_path, PAIR).rules)
    assert [(len(piece.nodes), piece.rule) for piece in pieces] == [(1, ""), (2, "mine"), (1, "")]


def test_marked_nodes_with_a_way_around_are_several_sections() -> None:
    graph = "g (float[4] x) => (y) { a = Abs(x) b = Neg(a) c = Exp(b) y = Add(a, c) }"
    nodes = list(inferred(graph).graph)
    for node in (nodes[0], nodes[1], nodes[3]):
        node.metadata_props[MARK] = "1:mine"
    (pieces,) = fuse([nodes], [], ())
    assert [[node.op_type for node in piece.nodes] for piece in pieces] == [
        ["Abs", "Neg"],
        ["Exp"],
        ["Add"],
    ]
    assert [piece.rule for piece in pieces] == ["mine", "", "mine"]


@pytest.mark.parametrize(
    ("steps", "places", "exhausted"),
    [(0, 0, True), (1, 0, True), (2, 0, True), (3, 1, True), (1_000, 3, False)],
)
def test_a_search_ends_where_its_steps_do(
    steps: int, places: int, exhausted: bool, tmp_path: Path
) -> None:
    (rule,) = rules(tmp_path, PAIR).rules
    flow = Dataflow.of(inferred(RELUS).graph)
    budget = StepBudget(steps)
    assert len(list(embeddings(rule.patterns[0], flow, Units(flow), budget))) == places
    assert budget.exhausted is exhausted
    assert budget.left >= 0


def test_what_is_refused_as_a_whole_is_looked_for_again(tmp_path: Path) -> None:
    """From one place all matches are offered until one is accepted."""
    text = """
      fork:
        priority: 1
        pattern:
          root: {op_type: abs, child: leaf}
          leaf: {op_type: relu}
    """
    (rule,) = rules(tmp_path, text).rules
    flow = Dataflow.of(
        inferred("g (float[4] x) => (y, z) { a = Abs(x) y = Relu(a) z = Relu(a) }").graph
    )
    offered: list[tuple[int, ...] | None] = []

    def accept(match: Match) -> bool:
        offered.append(match["leaf"])
        return len(offered) == 2

    (found,) = embeddings(rule.patterns[0], flow, Units(flow), StepBudget(), accept=accept)
    assert offered == [(1,), (2,)]
    assert found == {"root": (0,), "leaf": (2,)}


SUMS = """
  sums:
    priority: 1
    pattern:
      first: {op_type: abs, child: second}
      second: {op_type: add}
"""


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        # the first sum is behind an operator of the CPU
        (
            "a = Abs(x) c = Cos(a) y = Add(a, c) b = Add(a, x) z = Cos(b)",
            ["sums: Abs Add", "Cos Cos", "Add"],
        ),
        # the first sum waits for another section, which waits for the first operator
        ("a = Abs(x) c = Tanh(a) y = Add(a, c) z = Add(a, x)", ["sums: Abs Add", "Tanh", "Add"]),
        # one is enough
        ("a = Abs(x) y = Add(a, x) z = Add(a, a)", ["sums: Abs Add", "Add"]),
    ],
)
def test_of_several_places_the_first_that_can_be_a_section_is_taken(
    graph: str, found: list[str], tmp_path: Path
) -> None:
    assert matched(tmp_path, SUMS, f"g (float[4] x) => (y, z) {{ {graph} }}") == found


def test_an_optional_operator_of_another_group_is_left_out(tmp_path: Path) -> None:
    text = SUMS.replace("add}", "add, required: false}")
    graph = "g (float[4] x) => (y) { a = Abs(x) c = Cos(a) y = Add(a, c) }"
    assert matched(tmp_path, text, graph) == ["sums: Abs", "Cos", "Add"]


LAYER = (
    "g (float[2,4] x, float[4,4] w, float[4] v, float[2,4] u) => (y) { r = Relu(x) m = MatMul(r, w)"
)


@pytest.mark.parametrize(
    ("rest", "pattern", "found"),
    [
        # of what a node may be part of, the larger comes first, wherever the search begins
        ("y = Add(m, v)", "a: {op_type: linear}", ["Relu", "r: MatMul Add"]),
        ("y = Add(m, v)", "a: {op_type: [matmul, linear]}", ["Relu", "r: MatMul Add"]),
        ("y = Add(m, v)", "a: {op_type: relu, child: b}, b: {op_type: linear}", ["r: Relu MatMul Add"]),
        ("y = Add(m, v)", "a: {op_type: relu, child: b}, b: {op_type: [matmul, linear]}", ["r: Relu MatMul", "Add"]),
        # a layer adds a vector
        ("y = Mul(m, v)", "a: {op_type: linear}", ["Relu", "r: MatMul", "Mul"]),
        ("y = Add(m, u)", "a: {op_type: linear}", ["Relu", "r: MatMul", "Add"]),
        # a product is rarer than a sum, so that the search goes on from it
        ("c = Mul(m, v) d = Add(c, u) y = Add(d, v)", "a: {op_type: linear}", ["Relu", "r: MatMul", "Mul", "Add", "Add"]),
    ],
)  # fmt: skip
def test_what_a_linear_layer_is(rest: str, pattern: str, found: list[str], tmp_path: Path) -> None:
    text = f"r: {{priority: 1, pattern: {{{pattern}}}}}"
    assert matched(tmp_path, text, f"{LAYER} {rest} }}") == found


def test_every_edge_of_a_pattern_is_there(tmp_path: Path) -> None:
    text = """
      diamond:
        priority: 1
        pattern:
          root: {op_type: abs, children: [left, right]}
          left: {op_type: relu, child: join}
          right: {op_type: tanh, child: join}
          join: {op_type: add}
    """
    whole = (
        "g (float[4] x) => (y, z) { a = Abs(x) b = Relu(a) c = Tanh(a) y = Add(b, c) z = Neg(c) }"
    )
    assert matched(tmp_path, text, whole) == ["diamond: Abs Relu Tanh Add", "Neg"]
    lacking = whole.replace("Add(b, c)", "Add(b, x)")
    assert matched(tmp_path, text, lacking) == ["Abs", "Relu", "Tanh", "Add", "Neg"]
