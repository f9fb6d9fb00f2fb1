"""``samba-port adapt``: what it says, writes and refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from samba_onnx.tools.adapt.adapting import Adapted, adapt_source
from samba_onnx.tools.adapt.source import ProgramFile
from tests.cli.conftest import SambaPort
from tests.tools.adapt.expected import CORPUS

PLAIN = """\
import torch  # and nothing else

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.{optimizer}
for step in range(4):
    x = torch.randn(8, 3)
    {before}
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    {behind}
    optimizer.step()
"""


def adapted(
    optimizer: str = "SGD(model.parameters(), lr=0.1)", before: str = "pass", behind: str = "pass"
) -> Adapted:
    text = PLAIN.format(optimizer=optimizer, before=before, behind=behind)
    return adapt_source(ProgramFile("plain.py", text))


def test_the_difference_is_a_patch(samba_port: SambaPort, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text((CORPUS / "trainer_class.py").read_text())
    patch = tmp_path / "adapt.patch"
    adapted = adapt_source(ProgramFile("program.py", program.read_text()))
    patch.write_text(adapted.diff)
    subprocess.run(["git", "apply", "-p1", patch.name], cwd=tmp_path, check=True)
    assert program.read_text() == adapted.text


def test_what_need_not_change_stays() -> None:
    text = adapted().text
    assert text.startswith("import torch  # and nothing else\n")
    assert "    x = torch.randn(8, 3)\n" in text


def test_a_program_is_written(samba_port: SambaPort, tmp_path: Path) -> None:
    output, report = tmp_path / "rdu.py", tmp_path / "adapt.json"
    result = samba_port("adapt", CORPUS / "script_linear.py", "-o", output, "--json", report, "-q")
    assert (result.status, result.err) == (0, "")
    assert f"wrote {output}" in result.out
    document = json.loads(report.read_text())
    assert document["is_complete"]
    assert {"run", "optimizer", "imports"} <= {one["pattern"] for one in document["changes"]}
    assert "samba.session.run(" in output.read_text()


def test_what_would_not_run_is_not_written(samba_port: SambaPort, tmp_path: Path) -> None:
    output = tmp_path / "rdu.py"
    result = samba_port("adapt", CORPUS / "rmsprop.py", "-o", output)
    assert result.status == 1
    assert "rmsprop.py:5" in result.out
    assert "AdamW" in result.out
    assert not output.exists()
    assert samba_port("adapt", CORPUS / "rmsprop.py", "-o", output, "--partial").status == 1
    assert "samba.session.run(" in output.read_text()


def test_a_sambaflow_program_is_left_alone(samba_port: SambaPort, tmp_path: Path) -> None:
    output = tmp_path / "rdu.py"
    result = samba_port("adapt", CORPUS / "sambaflow_already.py", "-o", output)
    assert result.status == 0
    assert "already" in result.out
    assert not output.exists()


@pytest.mark.parametrize(
    ("optimizer", "written"),
    [
        ("SGD(model.parameters(), 0.1, 0.9)", "samba.optim.SGD(model.parameters(), 0.1, 0.9)"),
        (
            "Adam(model.parameters())",
            "samba.optim.AdamW(model.parameters(), betas=(0.9, 0.999))",
        ),
        (
            "AdamW(model.parameters(), lr=1e-3, fused=True)",
            "samba.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)",
        ),
        (
            "Adam(model.parameters(), weight_decay=0.1)",
            "samba.optim.Adam(model.parameters(), weight_decay=0.1, betas=(0.9, 0.999))",
        ),
    ],
)
def test_optimizers_step_as_before(optimizer: str, written: str) -> None:
    assert f"optimizer = {written}\n" in adapted(optimizer).text


@pytest.mark.parametrize(
    ("statement", "limit"),
    [
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)", "2.0"),
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)", "1"),
    ],
)
def test_gradients_are_clipped_by_the_optimizer(statement: str, limit: str) -> None:
    result = adapted(behind=statement)
    assert f"lr=0.1, max_grad_norm={limit})" in result.text
    assert "clip_grad_norm_" not in result.text
    assert result.blocking == ()


@pytest.mark.parametrize(
    ("places", "pattern", "line"),
    [
        (
            {
                "behind": "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    print(norm)"
            },
            "clipping",
            11,
        ),
        (
            {"behind": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1)"},
            "clipping",
            11,
        ),
        ({"optimizer": "Adagrad(model.parameters())"}, "optimizer", 4),
        (
            {
                "optimizer": "SGD(model.parameters(), lr=0.1)\nother = model\nother(torch.ones(1, 3)).sum().backward()"
            },
            "several-steps",
            12,
        ),
    ],
)
def test_what_cannot_be_adapted_is_named(places: dict[str, str], pattern: str, line: int) -> None:
    points = {(point.pattern, point.line) for point in adapted(**places).blocking}
    assert points == {(pattern, line)}


def test_a_mode_that_stays_is_named() -> None:
    dropped = PLAIN.format(
        optimizer="SGD(model.parameters())", before="pass", behind="model.eval()"
    )
    dropped = dropped.replace(
        "Linear(3, 1)", "Sequential(torch.nn.Linear(3, 1), torch.nn.Dropout())"
    )
    points = adapt_source(ProgramFile("plain.py", dropped)).blocking
    assert [(point.pattern, point.line) for point in points] == [("lasting-evaluation", 11)]
    # Not by words: a comment is no layer.
    assert adapted(behind="model.eval()  # no more Dropout").blocking == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("adapt", "{folder}/none.py"), "no such file"),
        (("adapt", "{folder}/broken.py"), "this is no Python"),
        (("adapt", "{folder}/plain.py", "-o", "{folder}/plain.py"), "overwrite"),
    ],
)
def test_wrong_use_is_one_line(
    samba_port: SambaPort, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "broken.py").write_text("for\n")
    (tmp_path / "plain.py").write_text("import torch\n")
    result = samba_port(*(text.format(folder=tmp_path) for text in arguments))
    assert result.status == 2
    assert words in result.err.lower() or words in result.err
    assert len(result.err.splitlines()) == 1


def test_parts_of_a_dictionary_leave_the_graph_by_themselves() -> None:
    name = "two_heads_in_a_dictionary.py"
    text = adapt_source(ProgramFile(name, (CORPUS / name).read_text())).text
    # A run returns tensors: of the dictionary, what somebody reads.
    assert "accuracy(out_logits, y)" in text


NEXT_BATCH = """\
import torch

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 3)
for step in range(4):
    y = model(x)
    if step >= 0:
        loss = y.square().mean()
        loss += y.abs().mean()
    else:
        loss = y.mean()
    x = torch.randn(8, 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(y.detach().cpu().numpy().sum())
"""


def test_a_step_takes_the_batch_that_its_forward_pass_took() -> None:
    result = adapt_source(ProgramFile("next.py", NEXT_BATCH))
    assert [point.pattern for point in result.blocking] == ["changing-branch"]
    text = adapt_source(
        ProgramFile("next.py", NEXT_BATCH.replace("step >= 0", "model.bias is not None"))
    ).text
    run = text.index("samba.session.run(")
    assert run < text.index("    x = torch.randn(8, 3)\n", run)
    assert "named_inputs(x)" in text
    assert "y.detach().numpy()" in text


def test_a_value_that_changes_within_a_step_is_named() -> None:
    text = NEXT_BATCH.replace("step >= 0", "model.bias is not None").replace(
        "    optimizer.zero_grad()\n",
        "    loss = loss + model(x).mean()\n    optimizer.zero_grad()\n",
    )
    points = adapt_source(ProgramFile("next.py", text)).blocking
    assert ("host-work-between", 13) in [(point.pattern, point.line) for point in points]
