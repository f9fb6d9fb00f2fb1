"""Files of rules: what is read of them, and the words about what is not."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from samba_onnx.errors import UsageError
from samba_onnx.passes.planning.fusion.choosing import FusionOptions, chosen_rules
from samba_onnx.passes.targets import load_target
from tests.passes.planning.fusion.fused import DEFAULT, rules

RULE = "r: {priority: 1, pattern: {a: {op_type: relu}}}\n"


def test_a_rule_with_everything(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
        low: {priority: 0, pattern: {a: {op_type: com.example::Op}}}
        high:
            priority: 1.5
            heuristic: SAFE_GEMM
            pattern:
                norm: {op_type: [layer_norm, rms_norm], required: false, child: up}
                up: {op_type: linear, children: [either, side]}
                either: {match_first_option: [act, other]}
                act: {op_type: gelu}
                other: {op_type: Relu}
                side: {op_type: to, included: false}
        """,
    )
    high, low = found.rules
    assert (low.name, low.priority, low.heuristic, low.source) == ("low", 0, "", "rules.yaml")
    assert (high.name, high.priority, high.heuristic) == ("high", 1.5, "SAFE_GEMM")
    first, second = high.patterns
    assert list(first.entries) == ["norm", "up", "act", "side"]
    assert list(second.entries) == ["norm", "up", "other", "side"]
    assert first.entries["up"].children == ("act", "side")
    assert first.entries["norm"].operators == ("layer_norm", "rms_norm")
    assert not first.entries["norm"].required
    assert not first.entries["side"].included


def test_a_rule_that_is_stated_again_counts_last_and_a_note_says_so(tmp_path: Path) -> None:
    found = rules(tmp_path, RULE + RULE.replace("priority: 1", "priority: 7"))
    (rule,) = found.rules
    assert rule.priority == 7
    assert found.notes == (
        "rules.yaml: rule 'r' is stated again in line 2, and the last one counts",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds nothing; expected rules by name, each with priority and pattern$"),
        ("{}", "rules.yaml: it holds an empty mapping; expected rules"),
        ("2020-01-01", "it holds date 2020-01-01; expected rules"),
        (f"'{'ab' * 40}'", f"it holds text '{'ab' * 19}a…'; expected"),
        (RULE.replace("relu", "xyzzyxyzzy"), "'xyzzyxyzzy' is no operator of PyTorch or ONNX that the compiler knows$"),
        (RULE.replace("relu", "relu, child: ab").replace("}}}", "}, abc: {op_type: neg}}}"), "a: child: there is no entry 'ab' in the pattern; did you mean 'abc'.$"),
        (RULE.replace("relu", "relu, child: zz"), "a: child: there is no entry 'zz' in the pattern$"),
        (RULE.replace("relu", "{x: y}"), "a: op_type: is a mapping; expected the name of an operator, or a list of names$"),
        (RULE.replace("op_type: relu", "op_type: {}"), "a: op_type: is an empty mapping; expected"),
        (RULE.replace("priority: 1", "priority: 1, heuristic: {name: a, b: {c: d}}"), "rule r: heuristic: expected name"),
        ("r: {priority: 1, pattern: {a: {match_first_option: [b], required: false}, b: {op_type: relu}}}", "rule r: pattern: a: stands for its options"),
        ("r: {priority: 1, pattern: {a: {match_first_option: [b], included: false}, b: {op_type: relu}}}", "rule r: pattern: a: stands for its options"),
        ("r: {priority: 1, pattern: {a: {op_type: relu}}, x: 1}", "rule r: x: unknown key; known: priority, pattern, heuristic$"),
        ("- a", "it holds a list; expected rules by name"),
        ("3", "it holds number 3; expected rules"),
        ("3: {priority: 1}", "3 is number 3; expected the name of a rule"),
        ("r: [1]", "rule r: is a list; expected priority and pattern"),
        (RULE.replace("relu", "liner"), "rule r: pattern: a: op_type: 'liner' is no operator.*'linear'"),
        (RULE.replace("relu", "layernormalization"), "did you mean 'LayerNormalization'"),
        (RULE.replace("a:", "child:").replace("{op_type: relu}", "relu"), "pattern: child: is text 'relu'; expected op_type"),
        (RULE.replace("a:", "op_type:").replace("relu", "3"), "pattern: op_type: op_type: is number 3; expected the name"),
        (RULE.replace("priority: 1", "priority: 1, priority: 2"), "rule r: 'priority' is stated again in line 1: leave one out"),
        (RULE.replace("relu}", "relu, child: b}, b: {op_type: neg, child: a}"), "goes round in a circle: a -> b -> a$"),
        (RULE.replace("{a: {op_type: relu}}", "{z: {op_type: relu}, b: {op_type: neg, child: a}, a: {op_type: exp}}"), "'b' is not connected with 'z'"),
        (RULE.replace("{a: {op_type: relu}}", "{d: {op_type: relu, child: c}, c: {op_type: neg}, a: {op_type: exp}}"), "'a' is not connected with 'd'"),
        (RULE.replace("relu}", "relu, included: false}"), "pattern: no operator has to be in the section: leave required or included out$"),
        (RULE.replace("op_type: relu", "match_first_option: [zz]"), "a: match_first_option: there is no entry 'zz' in the pattern$"),
        ("r: {priority: 1, pattern: {a: {op_type: abs, child: c}, c: {match_first_option: [b]}, b: {op_type: relu, required: false}}}", "pattern: b: required: an option of match_first_option is required$"),
        (RULE.replace("relu", "3"), "a: op_type: is number 3; expected the name of an operator"),
        (RULE.replace("relu", "[relu, 3]"), "a: op_type: is number 3; expected the name"),
        (RULE.replace("relu", "[]"), "a: op_type: is an empty list; expected"),
        (RULE.replace("priority", "priorty"), "priorty: unknown key; did you mean 'priority'"),
        (RULE.replace("op_type", "optype"), "a: optype: unknown key; did you mean 'op_type'"),
        (RULE.replace("priority: 1, ", ""), "rule r: priority: is missing; expected a number"),
        (RULE.replace("1", "high"), "rule r: priority: is text 'high'; expected a number"),
        (RULE.replace("1", "true"), "rule r: priority: is true; expected a number"),
        (RULE.replace("1", ".nan"), "rule r: priority: is number nan; expected a number"),
        (RULE.replace("{a: {op_type: relu}}", "[a]"), "pattern: is a list; expected operators"),
        (RULE.replace("{a: {op_type: relu}}", ""), "pattern: is nothing; expected operators"),
        (RULE.replace("{op_type: relu}", "relu"), "pattern: a: is text 'relu'; expected op_type"),
        (RULE.replace("op_type: relu", "required: true"), "a: expected op_type, or match_first"),
        (RULE.replace("relu", "relu, required: maybe"), "required: is text 'maybe'; expected true"),
        (RULE.replace("relu", "relu, child: bb"), "a: child: there is no entry 'bb'"),
        (RULE.replace("relu", "relu, child: [a]"), "a: child: is a list; expected the name"),
        (RULE.replace("relu", "relu, child: a"), "goes round in a circle: a -> a"),
        (RULE.replace("relu", "relu, child: a, children: [a]"), "a: has child and children"),
        (RULE.replace("relu", "relu, required: false"), "no operator has to be in the section"),
        (RULE.replace("relu", "relu, included: false"), "no operator has to be in the section"),
        (RULE.replace("relu}", "relu}, b: {op_type: neg}"), "'b' is not connected with 'a'"),
        (RULE.replace("relu}", "relu}, a: {op_type: neg}"), "rule r: pattern: 'a' is stated again"),
        (RULE.replace("pattern", "heuristic: [a], pattern"), "heuristic: is a list; expected a name"),
        (RULE.replace("pattern", "heuristic: {nme: a}, pattern"), "heuristic: expected name, and"),
        (
            "r: {priority: 1, pattern: {a: {match_first_option: [b], child: b}, b: {op_type: relu}}}",
            "a: stands for its options: child",
        ),
        (
            "r: {priority: 1, pattern: {a: {match_first_option: [b]}, b: {op_type: relu, required: false}}}",
            "option of match_first_option is required|no operator has to be",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        rules(tmp_path, text)
    assert str(caught.value).startswith(f"file of fusion rules {tmp_path / 'rules.yaml'}: ")
    assert "\n" not in str(caught.value)
    assert caught.value.path == str(tmp_path / "rules.yaml")


def test_heuristics_are_named_with_their_parameters(tmp_path: Path) -> None:
    text = RULE.replace("priority: 1", "priority: 1, heuristic: {name: MHA, degree: 2, where: top}")
    assert rules(tmp_path, text).rules[0].heuristic == "MHA(degree=2, where=top)"
    text = RULE.replace("priority: 1", "priority: 1, heuristic: {name: MHA}")
    assert rules(tmp_path, text).rules[0].heuristic == "MHA"


@pytest.mark.parametrize(("count", "fits"), [(500, True), (501, False)])
def test_a_file_has_so_many_rules_and_no_more(count: int, fits: bool, tmp_path: Path) -> None:
    text = "".join(
        f"r{n}: {{priority: 1, pattern: {{a: {{op_type: relu}}}}}}\n" for n in range(count)
    )
    if fits:
        assert len(rules(tmp_path, text).rules) == count
    else:
        with pytest.raises(UsageError, match="it has 501 rules; expected at most 500"):
            rules(tmp_path, text)


def test_what_is_no_file_of_rules_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^[^:]*: cannot open this file of fusion rules: "):
        chosen_rules(load_target("sn30"), "o1", FusionOptions(tmp_path / "none.yaml"))


def test_parallel_linear_layers_are_named(tmp_path: Path) -> None:
    def named(left: str, right: str) -> bool:
        entries = f"b: {{op_type: {left}}}, c: {{op_type: {right}}}"
        text = f"r: {{priority: 1, pattern: {{a: {{op_type: relu, children: [b, c]}}, {entries}}}}}"
        return rules(tmp_path, text).name_parallel_linears()

    assert named("linear", "addmm")
    assert not named("linear", "relu")
    assert not named("relu", "neg")


def test_options_that_stand_for_too_many_patterns(tmp_path: Path) -> None:
    groups = [f"g{i}" for i in range(7)]
    entries = ", ".join(
        f"{name}: {{match_first_option: [{name}a, {name}b]}}, {name}a: {{op_type: relu}}, "
        f"{name}b: {{op_type: neg}}"
        for name in groups
    )
    text = f"r: {{priority: 1, pattern: {{root: {{op_type: abs, children: [{', '.join(groups)}]}}, {entries}}}}}"
    with pytest.raises(UsageError, match="stand for 128 patterns; expected at most 64"):
        rules(tmp_path, text)


def test_which_rules_count(tmp_path: Path) -> None:
    target, path = load_target("sn30"), tmp_path / "mine.yaml"
    path.write_text(RULE + "norm: {priority: 99, pattern: {a: {op_type: neg}}}\n")
    names = [rule.name for rule in DEFAULT.rules]

    def counting(file: Path | None, defaults: bool | None) -> list[str]:
        found = chosen_rules(target, "o1", FusionOptions(file, defaults))
        return [rule.name for rule in found.rules]

    assert counting(None, None) == counting(None, True) == names
    assert counting(None, False) == []
    assert counting(path, None) == counting(path, False) == ["norm", "r"]
    both = counting(path, True)
    assert both[0] == "norm"
    assert sorted(both) == sorted([*names, "r"])
    note = "rule 'norm' of the file takes the place of the target's"
    assert note in chosen_rules(target, "o1", FusionOptions(path, True)).notes
    assert chosen_rules(target, "o3", FusionOptions()).rules == ()
    for options, what in (
        (FusionOptions(path), "a file of fusion rules was"),
        (FusionOptions(None, True), "rules of the target were"),
    ):
        message = f"^{what} stated for level o0: they count at level o1$"
        with pytest.raises(UsageError, match=message):
            chosen_rules(target, "o0", options)


def test_the_file_of_the_documentation_can_be_used(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "fusion.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = rules(tmp_path, text)
    assert [(rule.name, len(rule.patterns)) for rule in found.rules] == [("mlp", 1), ("head", 2)]
    (note,) = found.notes
    assert "SAFE_GEMM" in note


def test_an_operator_of_another_domain_may_be_in_a_graph(tmp_path: Path) -> None:
    found = rules(tmp_path, RULE.replace("relu", "com.example::Op"))
    assert found.notes == ()
    assert found.rules[0].unknown == ()


def test_options_that_stand_for_as_many_patterns_as_there_may_be(tmp_path: Path) -> None:
    groups = [f"g{i}" for i in range(6)]
    entries = ", ".join(
        f"{name}: {{match_first_option: [{name}a, {name}b]}}, {name}a: {{op_type: relu}}, "
        f"{name}b: {{op_type: neg}}"
        for name in groups
    )
    text = f"r: {{priority: 1, pattern: {{root: {{op_type: abs, children: [{', '.join(groups)}]}}, {entries}}}}}"
    assert len(rules(tmp_path, text).rules[0].patterns) == 64


def test_what_an_option_feeds_stays_where_others_feed_it(tmp_path: Path) -> None:
    text = """
    r:
      priority: 1
      pattern:
        root: {op_type: abs, children: [act, side]}
        act: {match_first_option: [one, other]}
        one: {op_type: relu, children: [side, own]}
        other: {op_type: neg}
        side: {op_type: exp}
        own: {op_type: tanh}
    """
    first, second = rules(tmp_path, text).rules[0].patterns
    assert list(first.entries) == ["root", "one", "side", "own"]
    assert list(second.entries) == ["root", "other", "side"]


def test_rules_of_a_target_of_the_users_are_read_when_they_count(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    target = dataclasses.replace(load_target("sn30"), fusion_rules=path)
    for name in ("first", "second"):
        path.write_text(RULE.replace("r:", f"{name}:", 1))
        found = chosen_rules(target, "o1", FusionOptions())
        assert [rule.name for rule in found.rules] == [name]
