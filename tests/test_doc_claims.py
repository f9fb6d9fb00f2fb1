"""What pages say in words or numbers of their own is what the product does, wherever a machine can tell."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from samba_onnx.cli.application import build_application
from samba_onnx.passes.targets import available_targets, load_target
from samba_onnx.tools import find_tools

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"))
    if path.name != "CHANGELOG.md"  # which tells of what was
)
COMMAND = re.compile(r"(?<![\w/.-])samba-port ([a-z][a-z-]*)((?: [^\n`|#&]*)?)")


@functools.cache
def _options(words: tuple[str, ...]) -> frozenset[str]:
    """Return the options of a command, as they are typed."""
    command: Any = typer.main.get_command(build_application(None))
    for word in words:
        command = command.commands[word]
    parameters = [
        parameter for parameter in command.params if parameter.param_type_name == "option"
    ]
    return frozenset({"--help"}.union(*([*p.opts, *p.secondary_opts] for p in parameters)))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_that_are_shown_exist(page: Path) -> None:
    tools = find_tools()
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    code = [
        *re.findall(r"`([^`\n]+)`", text),
        *re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S),
    ]
    for part in code:
        for name, rest in COMMAND.findall(part):
            assert name in tools, f"{page.name}: samba-port {name}{rest}"
            if tools[name].passes_on:
                continue
            words = rest.split()
            own = words[0] if words and words[0] in tools[name].commands else None
            if tools[name].commands and own is None:
                continue
            known = _options((name, own) if own else (name,))
            given = {
                word.split("=")[0] for word in words[: words.index("--") if "--" in words else None]
            }
            unknown = {word for word in given if re.fullmatch(r"--[a-z][\w-]*", word)} - known
            assert not unknown, f"{page.name}: samba-port {name}{rest}: {unknown}"


def test_targets_have_the_memories_of_their_page() -> None:
    page = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    assert {name for name, _ in rows} == set(available_targets())
    units = {"MB": 1e6, "GB": 1e9, "TB": 1e12}
    for name, stated in rows:
        tiers = {
            tier.lower(): float(number) * units[unit]
            for number, unit, tier in re.findall(r"([\d.]+) (MB|GB|TB) (\w+)", stated)
        }
        assert tiers == {tier.name: float(tier.bytes) for tier in load_target(name).summary.tiers}


def test_counts_of_the_index_are_those_of_the_tables() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page, sentence in (
        ("architectures", r"catalogue has (\d+)"),
        ("boundaries", r"The (\d+) architectures"),
    ):
        (line,) = re.findall(rf"\({page}\.md\): (.*)", index)
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert re.findall(r"\d+", line)[0] == re.findall(sentence, text)[0]
    training = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    gradients = (ROOT / "docs" / "torch_gradients.md").read_text(encoding="utf-8")
    counted, of = re.findall(r"(\d+) of (\d+) have torch's gradients", training)[0]
    assert re.search(rf"Of {of} operators with gradients to compare, {counted} pass", gradients)


def test_keys_of_the_report_that_its_page_names_are_those_of_its_schema() -> None:
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    rows = page.partition("| key | content |\n|---|---|\n")[2].partition("\n\n")[0]
    named = {key for row in rows.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert named - schema["properties"].keys() == set()
