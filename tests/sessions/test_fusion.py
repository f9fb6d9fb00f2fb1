"""Level o1 by SambaFlow's names: settings, the command line's, and ``samba.session.compile``."""

from __future__ import annotations

import copy
import logging
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx.parser
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.errors import UsageError
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.report import Report
from samba_onnx.sambaflow.samba import directives
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.sessions.fusion import DIRECTIVE, fuse, hints_beside
from samba_onnx.sessions.session_options import Destination
from tests.sessions.test_training import TOLERANCE, Regression, named

RULES = """
encoder:
    priority: 3
    heuristic: {name: SAFE_GEMM, tp_dim: Auto}
    pattern: {up: {op_type: linear, child: act}, act: {op_type: gelu, child: down}, down: {op_type: linear}}
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.down(nn.functional.gelu(self.up(x))))


def compiled(session: SambaSession, output: Path, **options: Any) -> Manifest:
    inputs = (samba.ones(2, 4, name="x"),)
    path = session.compile(Block().eval(), inputs, output=output / "m.pef", **options)
    with load_pef(path) as pef:
        return pef.manifest


def rules_of(manifest: Manifest) -> list[str]:
    return [section.rule for section in manifest.sections]


def test_settings_choose_level_and_rules(session: SambaSession, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    one = compiled(session, tmp_path, config_dict={"optim_level": "o1"})
    assert (one.level, rules_of(one)) == ("o1", ["linear_activation", "linear_activation"])
    settings = {"o1": True, "optimization_rules": str(file)}
    own = compiled(session, tmp_path, config_dict=settings)
    assert rules_of(own) == ["encoder", ""]
    assert [rule.heuristic for rule in own.fusion_rules] == ["SAFE_GEMM(tp_dim=Auto)"]
    both = compiled(session, tmp_path, config_dict=settings | {"use_o1_default_rules": True})
    assert rules_of(both) == ["encoder", ""]
    assert len(both.fusion_rules) > 1
    bare = compiled(session, tmp_path, level="o1", config_dict={"use_o1_default_rules": False})
    assert rules_of(bare) == [""] * 4


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, "o3"),
        ({"o1": True}, "o1"),
        ({"o0": True, "o1": True}, "o0"),
        ({"optim_level": 1}, "o1"),
        ({"optim_level": "O1"}, "o1"),
        ({"optim_level": "o3"}, "o3"),
    ],
)
def test_level_of_settings(settings: dict[str, Any], level: str) -> None:
    assert Destination().options(settings).sections.level == level


def test_rules_without_o1_have_no_effect_and_say_so(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tell_idle.cache_clear()
    with caplog.at_level(logging.WARNING):
        manifest = compiled(session, tmp_path, config_dict={"optimization_rules": "missing.yaml"})
    assert manifest.level == "o3"
    assert "optimization_rules has no effect: rules of fusion count at o1" in caplog.text


def test_a_file_that_cannot_be_used(session: SambaSession, tmp_path: Path) -> None:
    settings = {"o1": True, "optimization_rules": str(tmp_path / "missing.yaml")}
    with pytest.raises(UsageError, match=r"missing\.yaml"):
        compiled(session, tmp_path, config_dict=settings)


def test_onnx_models_have_rules_too(session: SambaSession, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.replace("gelu", "relu"))
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
        a = MatMul(x, w) b = Relu(a) y = MatMul(b, w) }"""
    path = session.compile(
        onnx.parser.parse_model(text),
        (samba.ones(2, 2, name="x"),),
        output=tmp_path / "m.pef",
        config_dict={"o1": True, "optimization_rules": str(tmp_path / "rules.yaml")},
    )
    with load_pef(path) as pef:
        assert rules_of(pef.manifest) == ["encoder"]


def test_a_program_that_trains_at_o1(session: SambaSession, tmp_path: Path) -> None:
    """Two steps leave torch's weights, and copy what the plan says and no more."""
    torch.manual_seed(0)
    model = Regression()
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    reference = torch.optim.SGD(twin.parameters(), lr=0.1)
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    path = session.compile(model, inputs, optimizer, output=tmp_path / "t.pef", level="o1")
    with load_pef(path) as pef:
        manifest = pef.manifest
    assert {section.type.value for section in manifest.sections} >= {"FWD", "BCKWD", "OPT"}
    assert any(section.rule for section in manifest.sections)
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    for _ in range(2):
        x, y = torch.randn(4, 6), torch.randint(3, (4,))
        reference.zero_grad()
        twin(x, y)[0].backward()
        reference.step()
        before = len(session._program.required_device().ledger.transfers)
        session.run(named(x, y), outputs)
        copies = session._program.required_device().ledger.transfers[before:]
        assert sorted(map(str, copies)) == sorted(map(str, manifest.graphs[0].run_transfers))
    session.to_cpu(model, optimizer)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.data, other.data, **TOLERANCE)


class Layers(nn.Module):
    """Two blocks, of which lines mark a part each time that they run."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            with directives.op_fusion(func_name="encoder", plugins=["lib.so"]):
                x = torch.sigmoid(block(x)) * 2
        return x


def sections(manifest: Manifest, kind: str = "FWD") -> list[tuple[str, int]]:
    return [(s.rule, s.nodes) for s in manifest.sections if s.type.value == kind]


def notes_of(manifest: Manifest) -> str:
    return " ".join(Report.from_manifest(manifest).notes)


def test_a_module_is_one_section(session: SambaSession, tmp_path: Path) -> None:
    model, inputs = nn.Sequential(Block(), Block()).eval(), (samba.ones(2, 4, name="x"),)
    directives.op_fusion(model[1], "Encoder")
    bare = {"use_o1_default_rules": False}

    def compiled(level: str) -> Manifest:
        path = session.compile(
            model, inputs, output=tmp_path / "m.pef", level=level, config_dict=bare
        )
        with load_pef(path) as pef:
            return pef.manifest

    manifest = compiled("o1")
    assert sections(manifest) == [*[("", 1)] * 4, ("op_fusion(Encoder)", 4)]
    assert "op_fusion" not in notes_of(manifest)
    assert manifest.sections[-1].name.endswith(":op_fusion(Encoder)")
    (report,) = Report.from_manifest(manifest).fusion
    assert (report.rule, report.source, report.nodes) == ("op_fusion(Encoder)", "op_fusion", 4)
    directives.op_fusion(model[1], "Encoder")
    other = compiled("o0")
    assert all(section.rule == "" for section in other.sections)
    assert "op_fusion" in notes_of(other)


def test_lines_are_one_section_each_time_that_they_run(
    session: SambaSession, tmp_path: Path
) -> None:
    model, inputs = Layers().eval(), (samba.ones(2, 4, name="x"),)
    path = session.compile(model, inputs, output=tmp_path / "m.pef", level="o1")
    with load_pef(path) as pef:
        manifest = pef.manifest
    assert sections(manifest) == [("op_fusion(encoder)", 6), ("op_fusion(encoder)", 6)]
    assert '{"plugins": ["lib.so"]}' in notes_of(manifest)
    assert "func_name" not in notes_of(manifest)
    samba.utils.trace_graph(model, inputs, pef=path)
    values = torch.randn(2, 4)
    (result,) = session.run([samba.from_torch_tensor(values, name="x")], list(model.output_tensors))
    torch.testing.assert_close(samba.to_torch(result), model(values).detach(), rtol=1e-5, atol=1e-6)


def test_marks_of_a_program_that_trains_are_sections_of_both_halves(
    session: SambaSession, tmp_path: Path
) -> None:
    model = Regression()
    directives.op_fusion(model.inner, "Inner")
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    inputs = (samba.randn(4, 6, name="x"), samba.randint(3, (4,), name="y"))
    path = session.compile(model, inputs, optimizer, output=tmp_path / "t.pef", level="o1")
    with load_pef(path) as pef:
        manifest = pef.manifest
    for kind in ("FWD", "BCKWD"):
        assert any(rule == "op_fusion(Inner)" for rule, _ in sections(manifest, kind))
    assert not any(rule for rule, _ in sections(manifest, "OPT"))


def test_marks_outside_of_what_is_compiled_are_still_hints(
    session: SambaSession, tmp_path: Path
) -> None:
    directives.op_fusion(Block(), "Elsewhere")
    manifest = compiled(session, tmp_path, level="o1")
    assert "Elsewhere" in notes_of(manifest)


def test_what_one_use_marks_and_records(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[Any] = []
    hints: list[Any] = []
    module = "samba_onnx.sessions.fusion"
    monkeypatch.setattr(f"{module}.mark_module", lambda one, name: marked.append((one, name)))
    monkeypatch.setattr(f"{module}.marked_lines", lambda name: nullcontext(name))
    block = Block()
    lines = [
        fuse(lambda _name, hint: hints.append(hint), arguments, options)
        for arguments, options in (
            ((block, "Encoder"), {"heuristic": "SAFE"}),
            ((block, "Encoder"), {"heuristic": {"name": "SAFE"}}),
            (("encoder",), {}),
            ((), {"func_name": "encoder", "plugins": []}),
            ((), {}),
        )
    ]
    assert marked == [(block, "op_fusion(SAFE)"), (block, "op_fusion(Encoder)")]
    names = [line.__enter__() for line in lines]
    assert names == [None, None, "op_fusion(encoder)", "op_fusion(encoder)", "op_fusion()"]
    assert hints == [
        {"on": ["Block", "Encoder"], "heuristic": "SAFE"},
        {"on": ["Block", "Encoder"], "heuristic": {"name": "SAFE"}},
        {"on": ["encoder"]},
        {"func_name": "encoder", "plugins": []},
        {},
    ]


LEFT: dict[str, tuple[Any, Any]] = {
    "used": ({"func_name": "encoder"}, None),
    "used, and more": ({"func_name": "encoder", "plugins": ["l"]}, {"plugins": ["l"]}),
    "not used": ({"func_name": "other", "on": []}, {"func_name": "other", "on": []}),
    "a module": ({"on": ["Block", "encoder"]}, None),
    "a heuristic": ({"on": ["Block"], "heuristic": "SAFE"}, None),
    "settings of one": (
        {"func_name": "encoder", "heuristic": {"tp": 1}},
        {"heuristic": {"tp": 1}},
    ),
    "a word": ("words", "words"),
    "two used": ([{"func_name": "encoder"}, {"on": ["encoder"]}], None),
    "one of two": ([{"func_name": "encoder"}, {"func_name": "a"}], {"func_name": "a"}),
    "none of two": ([{"on": ["b"]}, {"on": ["a"]}], [{"on": ["b"]}, {"on": ["a"]}]),
}


@pytest.mark.parametrize("name", LEFT)
def test_hints_that_are_left_beside_sections(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    use, left = LEFT[name]
    marks = [None, (1, "op_fusion(encoder)"), (2, "op_fusion(SAFE)")]
    monkeypatch.setattr("samba_onnx.sessions.fusion.read_mark", lambda node: node)
    program: Any = SimpleNamespace(parts=[SimpleNamespace(model=SimpleNamespace(graph=marks))])
    expected = {"more": 1} | ({} if left is None else {DIRECTIVE: left})
    assert hints_beside({DIRECTIVE: use, "more": 1}, [program]) == expected
    assert hints_beside({"more": 1}, [program]) == {"more": 1}
