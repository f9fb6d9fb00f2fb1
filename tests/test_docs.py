"""Every sample in README.md and docs/ runs as printed."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import onnx
import pytest

from docs.generators import samples

ROOT = Path(__file__).parent.parent
RUN = set(samples.pages())
"""Pages whose commands are run, and with them the files that the pages show."""
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")])
ELSEWHERE = {"data_preparation.md"}
"""Pages whose samples read what a command has written before: they are tested where that is."""
GUIDES = [ROOT / "docs" / "python.md"]
"""Pages whose samples follow one another; that on training is tested where training is."""
MODEL = """
    <ir_version: 8, opset_import: ["" : 18]>
    sample (float[batch, seq] x) => (float[batch, seq] y) {
        y = Relu(x)
    }
"""
SLOW_PAGES = {
    path
    for path in RUN
    if path.parent.name in ("commands", "tutorials") or path.name == "memory.md"
}
"""Pages whose commands take more than some seconds together, but for those of ``QUICK``."""
QUICK = {"ops.md", "targets.md", "lint.md", "install-sambaflow.md", "data-prep.md", "calibrate.md"}
WITH_TORCH = {
    "adapt.md",
    "exec.md",
    "memory.md",
    "plan.md",
    "tokens.md",
    "from_my_pytorch_script.md",
}
MOST_WORDS = 700
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for found, body in FENCE.findall(page.read_text())
        if found == language and page.name not in ELSEWHERE and page not in RUN
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the samples speak of: ``model.onnx``, and their own modules."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    for _, body in _blocks("python"):
        named = re.match(r"# (\w+\.py)\n", body)
        if named:
            (tmp_path / named[1]).write_text(body)
    (tmp_path / "out").mkdir()
    return tmp_path


SERVER = """
import importlib.util, json, os, sys, traceback, warnings

import samba_onnx.compiling.compiler
if importlib.util.find_spec("torch"):
    import samba_onnx.sessions

warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12, of libraries' threads
for line in sys.stdin:
    sample = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.chdir(sample["folder"])
            sys.path[0] = ""
            os.dup2(os.open("said.txt", os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(2, 1)
            exec(compile(sample["body"], "<sample>", "exec"), {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
"""A process that has imported what samples import, and runs each in a copy of itself."""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-c", SERVER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        cast("IO[str]", process.stdin).close()


@pytest.mark.parametrize(("page", "body"), _blocks("python"))
def test_python_samples_run(
    page: str, body: str, folder: Path, server: subprocess.Popen[str]
) -> None:
    if "import torch" in body:
        pytest.importorskip("torch")
    stdin, stdout = cast("IO[str]", server.stdin), cast("IO[str]", server.stdout)
    stdin.write(json.dumps({"body": body, "folder": str(folder)}) + "\n")
    stdin.flush()
    status = stdout.readline()
    assert status, "the process that runs samples ended"
    assert status == "0\n", f"{page}: {(folder / 'said.txt').read_text()}"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_interactive_samples_run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from samba_onnx.sessions import SESSION

    monkeypatch.chdir(folder)
    samples = page.read_text().replace("```\n", "\n")
    test = doctest.DocTestParser().get_doctest(samples, {}, page.name, str(page), 0)
    said: list[str] = []
    try:
        results = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    finally:
        SESSION.disable_lazy_param()
        SESSION.reset()
    assert results.attempted > 30
    assert not results.failed, "".join(said)


def test_the_commands_of_first_steps_run_in_their_order(folder: Path) -> None:
    port = Path(sys.executable).with_name("samba-port")
    commands = [
        line.split("#")[0]
        for page, body in _blocks("sh")
        if page == "first_steps.md"
        for line in body.splitlines()
        if line.startswith("samba-port ")
    ]
    assert len(commands) >= 9
    statuses = {}
    for command in commands:
        words = shlex.split(command)
        answer = subprocess.run([port, *words[1:]], cwd=folder, capture_output=True, text=True)
        statuses[command] = answer.returncode
        assert answer.returncode in (0, 1), f"{command}: {answer.stderr}"
        assert "Traceback" not in answer.stderr
    # The sample model runs on the RDU in whole where its dynamic dimensions get sizes, as they do.
    assert not any(statuses.values()), statuses


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=path.name, marks=pytest.mark.slow)
        if path in SLOW_PAGES and path.name not in QUICK
        else pytest.param(path, id=path.name)
        for path in sorted(RUN)
    ],
)
def test_commands_answer_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    if page.name in WITH_TORCH:
        pytest.importorskip("torch")
    text = page.read_text(encoding="utf-8")
    refresh = f"refresh it: python -m docs.generators.samples {page.relative_to(ROOT)}"
    assert samples.answered(text, tmp_path) == text, refresh


def test_an_answer_that_differs_is_seen(tmp_path: Path) -> None:
    page = "```console\n$ echo 1; echo 2; echo 3\n{}\n...\n3\n$ false\n$ echo $?\n1\n```\n"
    right, wrong = page.format(1), page.format(4)
    assert samples.answered(right, tmp_path) == right
    assert samples.answered(wrong, tmp_path) == right
    # What depends on the machine may differ.
    for said, shown in (("error 4.1e-07", "error  3e-08"), ("within 0", "within 1e-07")):
        page = f"```console\n$ echo {said}\n{shown}\n```\n"
        assert samples.answered(page, tmp_path) == page


def test_the_first_page_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < MOST_WORDS
    assert "make test" in text


def test_every_page_is_in_the_order_of_reading() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([\w/.]+\.md)\)", index)
    assert len(linked) == len(set(linked))
    # These have lists of their own.
    lists = {
        path
        for folder in ("commands", "decisions", "site/reference")
        for path in ROOT.glob(f"docs/{folder}/*.md")
    }
    lists -= {ROOT / "docs" / "decisions" / "index.md"}
    pages = set(ROOT.glob("docs/**/*.md")) - lists - {ROOT / "docs" / "index.md"}
    assert pages - {ROOT / "docs" / link for link in linked} == set()


def test_links_lead_to_files_and_headings() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for target, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            named = (page.parent / target) if target else page
            assert heading in _headings(named), f"{page.name}: {target}#{heading}"


def _headings(page: Path) -> set[str]:
    """Return the anchors that a code host makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {word.replace(" ", "-") for word in words}


def test_a_decision_says_what_else_was_tried() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    listed = (ROOT / "docs" / "decisions" / "index.md").read_text(encoding="utf-8")
    assert len(pages) >= 12
    for page in pages:
        headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Context", "Choice", "Alternatives", "Consequences"], page.name
        assert f"({page.name})" in listed
