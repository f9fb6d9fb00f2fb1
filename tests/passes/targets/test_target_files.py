"""Target files of the user's own: what extends, what overrides, what is refused and how."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from samba_onnx.errors import TargetError
from samba_onnx.passes.targets import available_targets, load_target, target_files
from samba_onnx.passes.targets.reasons import ReasonCode
from tests.passes.targets.samples import last_node

HARDWARE = """
[hardware.tiers.sram]
bytes = { value = 1000, evidence = "assumed", note = "" }
bytes_per_second = { value = 1.0, evidence = "assumed", note = "" }
[hardware.tiers.ddr]
bytes = { value = 1000, evidence = "assumed", note = "" }
bytes_per_second = { value = 1.0, evidence = "assumed", note = "" }
[hardware.peak_flops]
float32 = { value = 5, evidence = "assumed", note = "" }
[hardware.link_bytes_per_second]
value = 2
evidence = "published"
note = ""
[hardware.link_latency_seconds]
value = 0.5
evidence = "derived"
note = ""
"""
ALONE = 'opsets = [7, 21]\n[operators.Relu]\nassumed = ["float32"]\n' + HARDWARE


def write(folder: Path, content: str, name: str = "own.toml") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_built_in_targets() -> None:
    assert available_targets() == ("sn10", "sn30", "sn40l")


def test_a_target_is_returned_as_it_is() -> None:
    target = load_target("sn10")

    assert load_target(target) is target
    assert load_target("sn10") is target


def test_file_that_extends_nothing(tmp_path: Path) -> None:
    target = load_target(write(tmp_path, ALONE))

    assert target.name == "own"
    assert [row.name for row in target.rows] == ["Relu"]
    assert target.summary.link_latency_seconds == 0.5
    assert {assumption.name for assumption in target.summary.assumptions} == {
        "sram.bytes",
        "sram.bytes_per_second",
        "ddr.bytes",
        "ddr.bytes_per_second",
        "peak_flops.float32",
    }


def test_extending_adds_overrides_and_removes(tmp_path: Path) -> None:
    target = load_target(
        write(
            tmp_path,
            """
            extends = "sn40l"
            name = "ours"
            remove = ["TopK"]
            [operators.Atan]
            assumed = ["float32"]
            [operators.Relu]
            observed = ["float16"]
            [unsupported.Gelu]
            note = "under review"
            [hardware.tiers.sram]
            bytes = { value = 7, evidence = "assumed", note = "less" }
            """,
        )
    )
    base = load_target("sn40l")

    assert target.name == "ours"
    assert target.knows("", "Atan")
    assert not target.knows("", "TopK")
    assert target.summary.tier("sram").bytes == 7
    assert (
        target.summary.tier("sram").bytes_per_second == base.summary.tier("sram").bytes_per_second
    )
    assert target.summary.tier("hbm") == base.summary.tier("hbm")
    assert len(target.rows) == len(base.rows) - 1  # one more, two fewer
    gelu = target.support(last_node("float[2] x", "float[2] y", "y = Gelu(x)")).reason
    assert gelu is not None
    assert (gelu.code, gelu.message) == (
        ReasonCode.OPERATOR,
        "Gelu does not run on ours: under review",
    )
    assert base.knows("", "Gelu")


def test_row_is_narrowed_to_the_types_of_the_target(tmp_path: Path) -> None:
    target = load_target(write(tmp_path, 'extends = "sn40l"\ndtypes = ["bfloat16"]\n'))
    node = last_node("float[2] x", "float[2] y", "y = Add(x, x)")

    reason = target.support(node).reason

    assert reason is not None
    assert reason.message == "Add: input A is float32; own supports bfloat16"


def test_custom_domain(tmp_path: Path) -> None:
    target = load_target(
        write(
            tmp_path,
            """
            extends = "sn10"
            [operators."com.example::Thing"]
            assumed = ["float32"]
            operands.input1 = { assumed = ["int64"] }
            operands.output0 = { assumed = ["bool"] }
            static = ["input2"]
            """,
        )
    )
    body = "y = com.example.Thing(x, i, {})"
    given = "float[2] x, int64[2] i"
    imports = ', "com.example": 1'

    good = last_node(given, "bool[2] y", body.format("c"), "float c = {1}", imports=imports)
    wrong_output = last_node(given, "float[2] y", body.format("c"), "float c={1}", imports=imports)
    not_static = last_node(given, "bool[2] y", body.format("x"), imports=imports)

    assert target.knows("com.example", "Thing")
    assert target.static_inputs(good) == {2}
    assert target.support(good).reason is None
    assert getattr(target.support(wrong_output).reason, "code", None) is ReasonCode.DTYPE
    assert getattr(target.support(not_static).reason, "code", None) is ReasonCode.STATIC_INPUT


def test_attribute_range(tmp_path: Path) -> None:
    target = load_target(
        write(
            tmp_path,
            """
            extends = "sn10"
            [operators.Conv]
            assumed = ["float32"]
            attributes = { group = { min = 1, max = 2 } }
            """,
        )
    )
    weight = "float[4,1,1,1] w = {1, 2, 3, 4}"
    shapes = ("float[1,4,2,2] x", "float[1,4,2,2] y")

    reason = target.support(last_node(*shapes, "y = Conv<group=4>(x, w)", weight)).reason

    assert reason is not None
    assert reason.message == "Conv: attribute group is 4; own supports at least 1 and at most 2"
    assert target.support(last_node(*shapes, "y = Conv<group=2>(x, w)", weight)).reason is None


def test_extending_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, 'extends = "sn30"\nremove = ["Relu"]\n', "base.toml")
    path = write(tmp_path / "sub", 'extends = "../base.toml"\n', "leaf.toml")

    target = load_target(path)

    assert target.name == "leaf"
    assert not target.knows("", "Relu")
    assert target.summary.tiers == load_target("sn30").summary.tiers


def test_a_row_in_both_tables_of_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (*target_files.FOLDER.glob("*.toml"), target_files.FOLDER / "fusion_rules.yaml"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(target_files, "FOLDER", tmp_path)
    target_files.read_profile("sn30")
    with (tmp_path / "operators.toml").open("a") as table:
        table.write('\n[operators.LSTM]\nassumed = ["float32"]\nsource = "no more than a guess"\n')
    message = (
        r"operators.toml: operators.LSTM: a table that it extends has it among the unsupported"
    )
    with pytest.raises(TargetError, match=message):
        target_files.read_profile("sn30")


EXTENDS = 'extends = "sn40l"\n'
BAD = {
    "syntax": ("extends = ", "not valid TOML"),
    "not text": ("\x00\x01", "not valid TOML"),
    "unknown key": (EXTENDS + "colour = 1", "colour: unknown key"),
    "unknown nested key": (
        EXTENDS + '[operators.Relu]\nassumed = ["float32"]\nfoo = 1',
        "operators.Relu.foo: unknown key",
    ),
    "unknown type": (
        EXTENDS + '[operators.Relu]\nfull = ["float33"]',
        "operators.Relu: unknown data type 'float33'",
    ),
    "type twice": (
        EXTENDS + '[operators.Relu]\nfull = ["bool"]\nassumed = ["bool"]',
        "operators.Relu: data type 'bool' is listed twice",
    ),
    "no type": (EXTENDS + "[operators.Relu]\n", "operators.Relu: a row needs a data type"),
    "unknown operator": (
        EXTENDS + '[operators.Reluu]\nassumed = ["bool"]',
        "operators.Reluu: ONNX has no such operator",
    ),
    "unknown operand": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nstatic = ["shape"]',
        "operators.Relu has no operand 'shape'; it has X, Y",
    ),
    "unknown limit": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nlimits = ["x"]',
        "operators.Relu: unknown limit 'x'",
    ),
    "ranks reversed": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nranks = { X = [3, 2] }',
        "operators.Relu: ranks of 'X'",
    ),
    "ranks of one": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nranks = { X = [3] }',
        "operators.Relu.ranks.X",
    ),
    "versions reversed": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nsince = 9\nuntil = 8',
        "operators.Relu: until",
    ),
    "no values": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nattributes = { a = [] }',
        "operators.Relu.attributes.a",
    ),
    "wrong kind": (EXTENDS + "[operators.Relu]\nassumed = 5", "operators.Relu.assumed"),
    "range reversed": (
        EXTENDS + '[operators.Relu]\nassumed = ["bool"]\nattributes = { a = { min = 2, max = 1 } }',
        "operators.Relu.attributes.a: min exceeds max",
    ),
    "removed and stated": (
        EXTENDS + 'remove = ["Relu"]\n[operators.Relu]\nassumed = ["bool"]',
        "'Relu' is both",
    ),
    "nothing to remove": (EXTENDS + 'remove = ["Resize"]', "remove: the base has no row 'Resize'"),
    "code": (
        EXTENDS + '[unsupported.Relu]\nnote = "no"\ncode = "x"',
        "unsupported.Relu: unknown code 'x'",
    ),
    "no such base": ('extends = "sn99"', "extends: target 'sn99': neither built in"),
    "itself": ('extends = "own.toml"', "extends: goes round in a circle: own.toml -> own.toml"),
    "negative figure": (
        EXTENDS + '[hardware.link_latency_seconds]\nvalue = -1\nevidence = "assumed"\nnote = ""',
        "hardware.link_latency_seconds.value",
    ),
    "endless figure": (
        EXTENDS + '[hardware.link_latency_seconds]\nvalue = inf\nevidence = "assumed"\nnote = ""',
        "hardware.link_latency_seconds.value",
    ),
    "half a byte": (
        EXTENDS + '[hardware.tiers.sram]\nbytes = { value = 0.5, evidence = "assumed", note = "" }',
        "hardware.tiers.sram.bytes.value",
    ),
    "unknown evidence": (
        EXTENDS + '[hardware.link_latency_seconds]\nvalue = 1\nevidence = "guessed"\nnote = ""',
        "hardware.link_latency_seconds.evidence",
    ),
    "unknown tier": (EXTENDS + "[hardware.tiers.l2]\n", "hardware.tiers.l2"),
    "peak of no type": (
        EXTENDS + '[hardware.peak_flops]\nfp8 = { value = 1, evidence = "assumed", note = "" }',
        "unknown data type 'fp8'",
    ),
    "opsets reversed": (EXTENDS + "opsets = [9, 8]", "opsets are no range"),
    "unknown dtype": (EXTENDS + 'dtypes = ["half"]', "unknown data type 'half'"),
    "name": (EXTENDS + 'name = "../x"', "name:"),
    "empty": ("", "opsets: missing"),
    "no hardware": ('extends = "operators"', "hardware.tiers.sram: missing"),
    "no bandwidth": (
        'extends = "operators"\n' + HARDWARE.replace("bytes_per_second = {", "#"),
        "hardware.tiers.sram.bytes_per_second: missing",
    ),
    "large": ("#" * (1 << 20) + "\n", "larger than"),
    "deep": ("a = " + "[" * 100_000, "not valid TOML"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_refused_in_one_line_that_names_file_and_key(
    tmp_path: Path, content: str, message: str
) -> None:
    path = write(tmp_path, content)

    with pytest.raises(TargetError) as caught:
        load_target(path)

    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_circle_of_two(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "b.toml"', "a.toml")
    write(tmp_path, 'extends = "a.toml"', "b.toml")

    with pytest.raises(TargetError, match="circle"):
        load_target(tmp_path / "a.toml")


def test_too_long_a_chain(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path, f'extends = "{number + 1}.toml"', f"{number}.toml")

    with pytest.raises(TargetError):
        load_target(tmp_path / "0.toml")


@pytest.mark.parametrize("name", ["sn99", "", "no/such.toml", "a\0b", "operators"])
def test_no_such_target(name: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(name)

    assert "\n" not in str(caught.value)


def test_neither_folder_nor_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")

    for path in (tmp_path, tmp_path / "pipe.toml"):
        with pytest.raises(TargetError, match=r"(file|folder|pipe)"):
            load_target(path)


OVERLAPS = ("overlaps_to_rdu", "overlaps_to_host", "overlaps_cpu")


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_file_says_what_a_device_does_not_overlap(name: str, tmp_path: Path) -> None:
    figure = f'[hardware.{name}]\nvalue = false\nevidence = "assumed"\nnote = "tried"\n'
    own = load_target(write(tmp_path, 'extends = "sn40l"\n' + figure)).summary
    assert {one: getattr(own, one) for one in OVERLAPS} == {one: one != name for one in OVERLAPS}
    stated = {one.name: (one.value, one.unit, one.note) for one in own.assumptions}
    assert stated[name.replace("_", ".", 1)] == (0.0, "yes or no", "tried")


def test_what_nobody_says_does_not_overlap(tmp_path: Path) -> None:
    summary = load_target(write(tmp_path, ALONE)).summary
    assert not any(getattr(summary, name) for name in OVERLAPS)


@pytest.mark.parametrize("name", available_targets())
def test_what_targets_overlap_is_published_or_an_assumption(name: str) -> None:
    summary = load_target(name).summary
    assert all(getattr(summary, one) for one in OVERLAPS)
    assumed = {one.name for one in summary.assumptions if one.name.startswith("overlaps.")}
    assert assumed == {"overlaps.to_host", "overlaps.cpu"}
