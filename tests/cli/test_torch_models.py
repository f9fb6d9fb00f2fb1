"""``convert`` and ``analyze`` of PyTorch models: factories and exported programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import samba_onnx as samba
from samba_onnx.compiling.torch.session_records import read_records
from samba_onnx.export.operators import activations, registry
from samba_onnx.pef import load_pef
from samba_onnx.runtime.device import Device
from tests.cli.conftest import SambaPort
from tests.cli.factories import batch, net, training

HERE = "tests.cli.factories"
# One float32 product of four terms.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command put the working folder on the path without consequences."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])


@pytest.mark.parametrize("factory", ["positional", "by_keyword"])
def test_a_factory_becomes_a_pef_that_computes_what_torch_does(
    samba_port: SambaPort, tmp_path: Path, factory: str
) -> None:
    output = tmp_path / "net.pef"
    result = samba_port("convert", f"{HERE}:{factory}", "-o", output, "-q")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"{factory} [2x4, 2] → sn40l: ")
    assert "; all 17 nodes on the RDU" in result.out
    x, target = batch()
    with torch.no_grad():
        wanted = net()(x, target)
    with load_pef(output) as pef, Device(pef, threads=1) as device:
        made = device.run({"x": x.numpy(), "target": target.numpy()})
    for one, other in zip(made.values(), wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), **CLOSE)
    verified = samba_port("verify", output, "-q")
    assert verified.status == 0
    assert "2 outputs agree with the sample" in verified.out


def test_the_pef_of_a_factory_lies_in_the_working_folder(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_own_models.py").write_text(
        "import torch\n\ndef small():\n    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)\n"
    )
    assert samba_port("convert", "my_own_models:small", "-q").status == 0
    assert (tmp_path / "small.pef").exists()
    sys.modules.pop("my_own_models")


def test_what_a_factory_prints_is_no_part_of_the_answer(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    result = samba_port("convert", f"{HERE}:chatty", "-o", tmp_path / "m.pef", "--json", "-")
    assert result.status == 0
    assert json.loads(result.out)["model"]["name"] == "chatty"
    assert "this is no answer" in result.err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raising", r"raising failed at factories.py:\d+: RuntimeError: there is no data"),
        ("leaving", r"leaving failed at factories.py:\d+: SystemExit: 0"),
        ("nothing", "nothing returned NoneType: it must return a module and its example inputs"),
        ("alone", "alone returned Net: it must return a module"),
        ("junk", "junk returned str in place of a torch.nn.Module"),
        ("odd_inputs", "inputs are int: give a tuple of positional or a dict"),
        ("missing_input", "target"),
        (
            "with_parameters",
            "has parameters without a default, size, and a factory is called without arguments",
        ),
        (
            "Net",
            "Net is a class, not a function: give a function without parameters; it must return",
        ),
        ("training", "training returned tuple of 3: it must return a module and its example"),
        ("number", "number is int, not a function"),
        ("absent", "has no 'absent'"),
    ],
)
def test_factories_that_do_not_work_are_one_line(
    samba_port: SambaPort, tmp_path: Path, source: str, message: str
) -> None:

    result = samba_port("convert", f"{HERE}:{source}", "-o", tmp_path / "m.pef")
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("samba-port convert: error: ")
    assert re.search(message, line), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_such_package.models:net", "there is no Python module 'no_such_package.models'"),
        ("os.path.nothing:net", "there is no Python module 'os.path.nothing'"),
        ("my-models:net", "names no factory: give package.module:function"),
        ("models:", "models:"),
        ("models.py:net", "go by their names, without the suffix: models:net"),
    ],
)
def test_names_of_no_factory(
    samba_port: SambaPort, tmp_path: Path, source: str, message: str
) -> None:
    result = samba_port("convert", source, "-o", tmp_path / "m.pef")
    assert result.status == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_a_module_that_cannot_be_imported_is_one_line(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_models.py").write_text("import a_library_that_is_not_there\n")
    result = samba_port("convert", "broken_models:net")
    assert result.status == 2
    assert "broken_models.py:1: ModuleNotFoundError: No module named 'a_library" in result.err
    assert not list(tmp_path.glob("*.pef*"))


def test_what_computes_something_else_is_refused_unless_told_otherwise(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._TABLE, "silu", activations.relu)
    output = tmp_path / "m.pef"
    result = samba_port("convert", f"{HERE}:positional", "-o", output)
    assert (result.status, result.out) == (2, "")
    assert "the first operator that differs is aten.silu.default at factories.py:" in result.err
    assert list(tmp_path.iterdir()) == []
    assert samba_port("convert", f"{HERE}:positional", "-o", output, "--no-check").status == 0
    assert samba_port("verify", output, "-q").status == 1


def test_analyze_reports_without_writing(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = samba_port("analyze", f"{HERE}:positional", "--json", "-")
    assert result.status == 0
    assert json.loads(result.out)["coverage"]["cpu_nodes"] == 0
    assert list(tmp_path.iterdir()) == []


def test_verify_takes_the_module_that_the_pef_was_made_of(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "net.pef"
    convert = ("convert", f"{HERE}:positional", "-o", output, "-q", "--no-sample")
    assert samba_port(*convert).status == 0
    result = samba_port("verify", f"{HERE}:by_keyword", output, "--json", tmp_path / "v.json")
    assert (result.status, result.err) == (0, "")
    assert "net.pef: 2 outputs agree with the module in eager torch" in result.out
    document = json.loads((tmp_path / "v.json").read_text())
    assert (document["against"], len(document["outputs"])) == ("torch", 2)
    # Another version of the same module: its weights are not those of the PEF.
    changed = net()
    with torch.no_grad():
        changed.layer.weight += 1e-3
    monkeypatch.setattr("tests.cli.factories.net", lambda: changed)
    other = samba_port("verify", f"{HERE}:positional", output, "-q")
    assert other.status == 1
    assert "differ from the module in eager torch" in other.out


def test_stochastic_rounding_is_of_programs_that_train(samba_port: SambaPort) -> None:
    factory = f"{HERE}:narrow_training"
    names = ("--stochastic-rounding", "steps,gradients")
    result = samba_port("analyze", factory, "--train", *names, "--json", "-")
    assert result.status == 0, result.err
    (note,) = [note for note in json.loads(result.out)["notes"] if "Stochastic" in note]
    assert "that optimizers store in bfloat16 (6), sums that make gradients of weights (2)" in note
    result = samba_port("convert", factory, *names)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "give --train with it" in result.err
    result = samba_port("analyze", factory, "--train", "--stochastic-rounding", "all")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "expected some of steps" in result.err


def test_a_training_program_is_analyzed_as_it_is_compiled(
    samba_port: SambaPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = (f"{HERE}:training", "--train", "--loss-index", 0, "--json", "-")
    analyzed = samba_port("analyze", *program)
    assert (analyzed.status, analyzed.err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    compiled = samba_port("convert", *program, "-o", "t.pef")
    left, right = json.loads(analyzed.out), json.loads(compiled.out)
    assert {part["type"] for part in left["parts"]} >= {"FWD", "BCKWD", "OPT"}
    differing = {name for name in left if left[name] != right[name]}
    # Files exist only once they are written, and only convert compares with torch.
    assert differing <= {"members", "notes"}


def test_a_program_that_rounds_at_random_is_checked_and_compared(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    factory, output = f"{HERE}:narrow_training", tmp_path / "n.pef"
    names = ("--train", "--stochastic-rounding", "steps,gradients")
    result = samba_port("convert", factory, *names, "-o", output, "-q", "--check-passes")
    assert (result.status, result.err) == (0, "")
    compared = samba_port("compare", factory, output)
    assert (compared.status, compared.err) == (0, "")
    assert "net__layer__weight__grad" in compared.out


def test_an_exported_program_in_another_precision(samba_port: SambaPort, tmp_path: Path) -> None:
    module, (x, target) = net().eval(), batch()
    torch.export.save(torch.export.export(module, (x,), {"target": target}), tmp_path / "net.pt2")
    result = samba_port("convert", tmp_path / "net.pt2", "--precision", "bf16", "--json", "-", "-q")
    assert (result.status, result.err) == (0, "")
    assert any("Precision bf16: values" in note for note in json.loads(result.out)["notes"])
    with load_pef(tmp_path / "net.pef") as pef, Device(pef) as device:
        _, out = device.run({"x": x.numpy(), "target": target.numpy()}).values()
        types = {s.type for s in pef.manifest.symbols if s.kind == "weight"}
    assert types == {"tensor(bfloat16)"}
    with torch.no_grad():
        expected = module.bfloat16()(x.bfloat16(), target)[1].float().numpy()
    np.testing.assert_allclose(out, expected, rtol=2**-7)


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_programs(samba_port: SambaPort, tmp_path: Path, dynamic: bool) -> None:
    module, (x, target) = net().eval(), batch()
    sizes = {0: torch.export.Dim("batch")} if dynamic else None
    shapes = {"x": sizes, "target": sizes} if dynamic else None
    program = torch.export.export(module, (x,), {"target": target}, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "net.pt2")
    result = samba_port("convert", tmp_path / "net.pt2", "-q")
    assert (result.status, result.err) == (0, "")
    verified = samba_port("verify", tmp_path / "net.pef", "-q")
    assert "2 outputs agree with the sample" in verified.out
    with load_pef(tmp_path / "net.pef") as pef:
        assert set(pef.manifest.graphs[0].inputs) == {"x", "target"}
        assert {s.name for s in pef.manifest.symbols} >= {"net__layer__weight"}


def hostile(folder: Path, kind: str) -> Path:
    """An exported program that wants code to run."""
    saved, path = folder / "saved.pt2", folder / "hostile.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 3), (torch.ones(2, 4),)), saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if kind == "pickled":
                content = content.replace(b'"use_pickle": false', b'"use_pickle": true')
            elif kind == "cut" and info.filename.endswith("model.json"):
                content = content[:100]
            elif kind == "size" and info.filename.endswith("model.json"):
                size = json.dumps({"as_expr": {"expr_str": "exit(3)", "hint": {"as_int": 2}}})
                content = content.replace(b'{"as_int": 2}', size.encode(), 1)
            new.writestr(info.filename, content)
    saved.unlink()
    if kind == "no archive":
        path.write_bytes(b"\x80\x04c__builtin__\nexit\n")
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("pickled", "is a pickled object, which is never loaded"),
        ("size", "the size 'exit(3)' is none that torch.export writes"),
        ("cut", "is no exported program"),
        ("no archive", "is no exported program"),
    ],
)
def test_hostile_programs_are_one_line(
    samba_port: SambaPort, tmp_path: Path, kind: str, message: str
) -> None:
    path = hostile(tmp_path, kind)
    result = samba_port("convert", path, "-o", tmp_path / "m.pef")
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_program(samba_port: SambaPort, tmp_path: Path) -> None:
    result = samba_port("convert", tmp_path / "absent.pt2")
    assert result.status == 2
    assert "absent.pt2" in result.err


def test_a_training_factory_becomes_what_the_session_traces(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    output = tmp_path / "train.pef"
    result = samba_port("convert", f"{HERE}:training", "--train", "-o", output, "-q")
    assert (result.status, result.err) == (0, "")
    model = net()
    samba.from_torch_model_(model)
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    inputs = dict(zip(("x", "target"), batch(), strict=True))
    outputs = samba.utils.trace_graph(model, inputs, optimizer, pef=output)
    first, second = (samba.session.run(inputs, outputs[:1])[0].item() for _ in range(2))
    samba.session.reset()
    assert first == pytest.approx(net()(*batch())[0].item(), rel=1e-5)
    assert second < first


def test_losses_may_be_named(samba_port: SambaPort, tmp_path: Path) -> None:
    output, report = tmp_path / "train.pef", tmp_path / "report.json"
    convert = ("convert", f"{HERE}:training", "--train", "-o", output, "-q", "--json", report)
    notes = {}
    for index in ((), (0,), (1,)):
        chosen = [word for one in index for word in ("--loss-index", one)]
        assert samba_port(*convert, *chosen).status == 0
        notes[index] = [n for n in json.loads(report.read_text())["notes"] if "starts" in n]
        with load_pef(output) as pef:
            (record,) = read_records(pef).values()
        assert record.loss_indices == list(index or (0,))
    assert "Training starts from output 0 " in notes[()][0]
    assert notes[(0,)] == notes[(1,)] == []


def test_parameters_of_a_training_factory_may_be_lazy(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    output = tmp_path / "lazy.pef"
    try:
        result = samba_port(
            "convert", f"{HERE}:lazy_training", "--train", "--no-check", "-o", output, "-q"
        )
    finally:
        samba.session.disable_lazy_param()
    assert (result.status, result.err) == (0, "")
    with load_pef(output) as pef:
        assert {section.type.value for section in pef.manifest.sections} >= {"FWD", "OPT"}


def test_a_training_factory_becomes_the_file_that_a_session_writes(
    samba_port: SambaPort, tmp_path: Path
) -> None:
    output = tmp_path / "train.pef"
    assert samba_port("convert", f"{HERE}:training", "--train", "-o", output, "-q").status == 0
    compiled = samba.session.compile(*training(), "training", output=tmp_path / "session.pef")
    assert output.read_bytes() == Path(compiled).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([f"{HERE}:positional", "--train"], "returned tuple of 2: it must return a module, its"),
        ([f"{HERE}:training_without_optimizer", "--train"], "an optimizer is str"),
        (["program.pt2", "--train"], "cannot be trained"),
        ([f"{HERE}:positional", "--loss-index", "0"], "--loss-index is for --train"),
        ([f"{HERE}:training", "--train", "--loss-index", "7"], "loss_indices has 7, but"),
        (["model.onnx", "--train"], "trained from Python, with samba.from_onnx"),
        (["model.onnx", "--no-check"], "--no-check is for PyTorch models"),
        ([f"{HERE}:positional", "--dim", "batch=2"], "are for ONNX models"),
    ],
)
def test_options_that_do_not_fit(
    samba_port: SambaPort, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = samba_port("convert", *arguments, "-o", tmp_path / "m.pef")
    assert result.status == 2
    assert message in result.err
    assert list(tmp_path.iterdir()) == []


def test_the_process_answers_without_a_traceback(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "samba_onnx.cli", "convert", f"{HERE}:leaving"]
    done = subprocess.run(
        [*program, "-o", str(tmp_path / "m.pef")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "SystemExit" in done.stderr
    assert "Traceback" not in done.stderr
