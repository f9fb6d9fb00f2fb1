"""Files of rules: what is read of them, and the words about what is not."""

from __future__ import annotations

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
        ("", "it holds nothing; expected rules by name, each with priority and pattern"),
        ("- a", "it holds a list; expected rules by name"),
        ("3", "it holds number 3; expected rules"),
        ("3: {priority: 1}", "3 is number 3; expected the name of a rule"),
        ("r: [1]", "rule r: is a list; expected priority and pattern"),
        (RULE.replace("relu", "liner"), "rule r: pattern: a: op_type: 'liner' is no operator.*'linear'"),
        (RULE.replace("relu", "layernormalization"), "did you mean 'LayerNormalization'"),
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
    for options in (FusionOptions(path), FusionOptions(None, True)):
        with pytest.raises(UsageError, match="they count at level o1"):
            chosen_rules(target, "o0", options)


def test_the_file_of_the_documentation_can_be_used(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "fusion.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = rules(tmp_path, text)
    assert [(rule.name, len(rule.patterns)) for rule in found.rules] == [("mlp", 1), ("head", 2)]
    (note,) = found.notes
    assert "SAFE_GEMM" in note
