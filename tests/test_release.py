"""What a release and a public host need: each file is parsed, and what can run here runs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from samba_onnx.tools.example.example import ExampleName
from tests.test_packaging import PROJECT, copy_checkout

ROOT = Path(__file__).parent.parent
HOST = ROOT / ".github"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _yaml(path: Path) -> dict[Any, Any]:
    read: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return read


def test_two_builds_of_one_commit_are_one_wheel(tmp_path: Path) -> None:
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    digests = set()
    for name in ("first", "second"):
        # The times of files differ, as in two checkouts.
        source = copy_checkout(tmp_path / name)
        (tmp_path / f"dist-{name}").mkdir()
        subprocess.run(
            [sys.executable, "-c", build, str(tmp_path / f"dist-{name}")],
            cwd=source, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, capture_output=True, check=True,
        )  # fmt: skip
        (wheel,) = (tmp_path / f"dist-{name}").iterdir()
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda path: path.name
)
def test_workflows_call_the_parts_that_there_are(path: Path) -> None:
    workflow = _yaml(path)
    # YAML 1.1 reads the key "on" as a truth value.
    assert workflow.keys() == {"name", True, "permissions", "jobs"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 180
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        for command in commands:
            subprocess.run(
                ["bash", "-n", "-c", re.sub(r"\$\{\{[^}]*\}\}", "X", command)], check=True
            )
            # What somebody else writes, as the title of a pull request, is in no command.
            assert not re.search(r"\$\{\{\s*(github\.event|inputs)", command)
            if command.startswith("make "):
                assert set(command.split()[1:]) <= TARGETS
        assert set(job.get("strategy", {}).get("matrix", {}).get("part", ())) <= TARGETS


def test_what_ci_runs_is_the_parts_of_the_checks() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    parts = script.partition("set -- ")[2].splitlines()[0].split()
    assert set(parts) <= TARGETS
    listed = _yaml(HOST / "workflows" / "checks.yml")["jobs"]["part"]["strategy"]["matrix"]["part"]
    assert set(parts) <= set(listed)


@pytest.mark.parametrize("script", [".ci/run", ".ci/release"])
def test_scripts_can_be_read(script: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
    assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize(
    "path", sorted(HOST.glob("ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.name
)
def test_templates_of_issues_are_forms(path: Path) -> None:
    form = _yaml(path)
    if path.name == "config.yml":
        assert form == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "labels", "body"} == form.keys()
    fields = form["body"]
    assert {field["type"] for field in fields} <= {"textarea", "input"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_the_action_runs_as_its_steps_are_written(tmp_path: Path) -> None:
    """But for those that fetch Python and this package, which are there."""
    action = _yaml(ROOT / "action.yml")
    assert action["runs"]["using"] == "composite"
    set_up, install, analyze = action["runs"]["steps"]
    assert set_up["uses"].startswith("actions/setup-python@")
    assert install["run"].startswith("python -m pip install")
    port = Path(sys.executable).with_name("samba-port")
    example = ExampleName.DETECTOR.value
    subprocess.run(
        [port, "example", example, "-o", "my model.onnx", "-q"], cwd=tmp_path, check=True
    )
    statuses = []
    for arguments in ("", "--max-fallbacks 0", "--max-fallbacks 1; touch broken $(touch broken)"):
        given = {"inputs.model": "my model.onnx", "inputs.arguments": arguments}
        environment = {name: given[text.strip("${} ")] for name, text in analyze["env"].items()}
        summary = tmp_path / f"summary{len(statuses)}.md"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", analyze["run"]],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={
                **os.environ, **environment, "GITHUB_STEP_SUMMARY": str(summary),
                "PATH": f"{port.parent}{os.pathsep}{os.environ['PATH']}",
            },
        )  # fmt: skip
        statuses.append(done.returncode)
    assert statuses == [0, 1, 2]
    assert "NonMaxSuppression" in (tmp_path / "summary0.md").read_text(encoding="utf-8")
    assert not (tmp_path / "broken").exists()


def test_the_container_has_what_its_lines_name() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    words = [word for word, _ in lines]
    assert words == ["FROM", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT"]
    said = dict(lines)
    minor = said["FROM"].removeprefix("python:").partition("-")[0]
    assert f"Programming Language :: Python :: {minor}" in PROJECT["project"]["classifiers"]
    subprocess.run(["bash", "-n", "-c", said["RUN"]], check=True)
    (extras,) = re.findall(r"/source\[([\w,]+)\]", said["RUN"])
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    assert said["ENTRYPOINT"] == '["samba-port"]'
    assert "samba-port" in PROJECT["project"]["scripts"]
    assert f"useradd --create-home {said['USER']}" in said["RUN"]
