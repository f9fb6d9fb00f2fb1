"""Compiling: where the PEF goes, what it keeps, ONNX models, and what is refused."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from pydantic import BaseModel

import samba_onnx as samba
from samba_onnx.errors import (
    ExportMismatchError,
    GraphMismatchError,
    OutOfDeviceMemoryError,
    UsageError,
)
from samba_onnx.pef import load_pef
from samba_onnx.pef.manifest import Manifest
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.compiler import Compiler
from samba_onnx.sessions.graph_traces import GraphTraces
from samba_onnx.sessions.session_options import Destination, SessionOptions
from samba_onnx.sessions.trace_mode import TraceMode
from tests.sessions.modules import Doubled


class Arguments(BaseModel):
    output_folder: str
    pef_name: str = ""
    arch: str = "sn30"
    group: dict[str, bool] = {}


def manifest(path: str | Path) -> Manifest:
    with load_pef(path) as pef:
        return pef.manifest


def compiled(session: SambaSession, **options: object) -> Path:
    path = session.compile(Doubled(), (samba.ones(3, name="value"),), **options)
    assert isinstance(path, str)
    assert Path(f"{path}.log").exists()
    return Path(path)


def test_the_pef_goes_where_the_settings_say(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert compiled(session) == Path("out/doubled/doubled.pef")
    session.setup(Arguments(output_folder="folder"))
    assert compiled(session) == Path("folder/doubled/doubled.pef")
    assert manifest("folder/doubled/doubled.pef").target.name == "sn30"
    session.setup(Arguments(output_folder="folder", pef_name="mine", group={"o0": True}))
    assert compiled(session, name="internal") == Path("folder/mine/mine.pef")
    assert manifest("folder/mine/mine.pef").level == "o0"
    config = {"pef_name": "other.pef", "arch": "sn40", "batch_size": None}
    path = compiled(session, config_dict=config)
    assert path == Path("folder/other/other.pef")
    assert compiled(session, config_dict=Namespace(pef_name="third")).stem == "third"
    path = compiled(session, output=tmp_path / "deep" / "own.pef", target="sn10", level="o3")
    assert path == tmp_path / "deep" / "own.pef"
    made = manifest(path)
    assert (made.target.name, made.level) == ("sn10", "o3")
    with pytest.raises(UsageError, match="without folders"):
        compiled(session, config_dict={"pef_name": "../up"})
    with pytest.raises(UsageError, match="give a pydantic model"):
        session.setup({"pef_name": "x"})  # type: ignore[arg-type]


def test_kernel_looping_is_a_setting_that_the_argument_overrides(
    session: SambaSession, tmp_path: Path
) -> None:
    settings = {"arch": "sn30", "kernel_looping": True}
    for overrides, expected in (
        ({}, ("sn30", True)),
        ({"kernel_looping": False}, ("sn30", False)),
        ({"target": "own.toml"}, ("own.toml", True)),
    ):
        device = Destination(overrides=overrides).options(settings).device
        assert (device.target, device.kernel_looping) == expected
    output = tmp_path / "looped.pef"
    made = manifest(compiled(session, output=output, target="sn30:tuned", kernel_looping=True))
    assert made.target.name == "sn30:kernel-looping,tuned"


def test_metadata_is_kept(session: SambaSession, tmp_path: Path) -> None:
    path = compiled(
        session,
        output=tmp_path / "x.pef",
        pef_metadata={"batch_size": 4, "lengths": [1, 2], "note": "text"},
        metadata={"more": {"a": 1}, "number": "4"},
    )
    metadata = manifest(path).metadata
    assert metadata["batch_size"] == "4"
    assert metadata["lengths"] == "[1, 2]"
    assert metadata["note"] == "text"
    assert metadata["more"] == '{"a": 1}'
    assert metadata["number"] == '"4"'


def test_what_programs_pass_besides_is_accepted(session: SambaSession, tmp_path: Path) -> None:
    compiled(
        session,
        optimizers=None,
        name="any",
        loss_indices=None,
        io_host_memory=True,
        app_dir="/nowhere",
        squeeze_bs_dim=True,
        init_output_grads=True,
        inference=True,
        is_split_batch=False,
        graph_transform_hook=None,
        graph_names=None,
        output=tmp_path / "x.pef",
    )


def test_what_cannot_be_compiled_is_refused(session: SambaSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an optimizer is str"):
        compiled(session, optimizers=["SGD"], output=tmp_path / "x.pef")
    with pytest.raises(UsageError, match="graph_transform_hook is not supported"):
        compiled(session, graph_transform_hook=print)
    with pytest.raises(UsageError, match="the model is Tensor"):
        session.compile(torch.ones(3), (samba.ones(3),), output=tmp_path / "x.pef")
    assert not list(tmp_path.iterdir())


class Large(torch.nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + 1.0


def test_a_model_that_does_not_fit_is_refused(session: SambaSession, tmp_path: Path) -> None:
    huge = samba.SambaTensor(shape=(1 << 18, 1 << 20), dtype=torch.float32, name="value")
    with pytest.raises(OutOfDeviceMemoryError):
        session.compile(Large(), (huge,), output=tmp_path / "x.pef", check=False)


class Fickle(torch.nn.Module):
    """Computes something else when it is called eagerly."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * (2.0 if torch.compiler.is_compiling() else 3.0)


def test_a_program_that_computes_something_else_is_refused(
    session: SambaSession, tmp_path: Path
) -> None:
    inputs = (samba.ones(3, name="value"),)
    with pytest.raises(ExportMismatchError, match="differs"):
        session.compile(Fickle(), inputs, output=tmp_path / "x.pef")
    assert not (tmp_path / "x.pef").exists()
    path = session.compile(Fickle(), inputs, output=tmp_path / "x.pef", check=False)
    (output,) = samba.utils.trace_graph(Fickle(), inputs, pef=path)
    torch.testing.assert_close(session.run(inputs, output)[0].torch(), torch.full((3,), 2.0))


def gemm(seed: int = 0) -> onnx.ModelProto:
    torch.manual_seed(seed)
    weight, bias = torch.randn(3, 4).numpy(), torch.randn(3).numpy()
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "weight", "bias"], ["y"], transB=1),
            helper.make_node("Add", ["y", "shift"], ["z"]),
        ],
        "affine",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("shift", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("names", [("x", "shift"), ("image", "offset")])
def test_an_onnx_model_takes_the_place_of_a_module(
    session: SambaSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    model = gemm()
    inputs = (samba.randn(2, 4, name=names[0]), samba.randn(3, name=names[1]))
    path = session.compile(model, inputs, config_dict={"output_folder": str(tmp_path)})
    assert path == str(tmp_path / "affine" / "affine.pef")
    file = tmp_path / "affine.onnx"
    onnx.save(model, file)
    weight, bias = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    for source in (model, file, str(file)):
        (output,) = samba.utils.trace_graph(source, inputs, pef=path)
        assert (output.sn_name, output.shape) == ("z", (2, 3))
        for scale in (1.0, 2.0, 3.0):
            given = [samba.from_torch_tensor(t.torch() * scale, name=t.sn_name) for t in inputs]
            (result,) = session.run(given, [output])
            expected = given[0].torch() @ torch.tensor(weight).T + torch.tensor(bias)
            torch.testing.assert_close(
                result.torch(), expected + given[1].torch(), rtol=1e-5, atol=1e-5
            )
    with pytest.raises(GraphMismatchError, match="Gemm, with other operands"):
        samba.utils.trace_graph(gemm(seed=1), inputs, pef=path)
    with pytest.raises(GraphMismatchError, match=r"input 'x' \[2, 4\]; the model has .*\[5, 4\]"):
        samba.utils.trace_graph(model, (samba.randn(5, 4, name=names[0]), inputs[1]), pef=path)
    with pytest.raises(UsageError, match="3 inputs were given; the ONNX model has x, shift"):
        samba.utils.trace_graph(model, (*inputs, samba.ones(1, name="third")), pef=path)


def test_a_compiler_needs_no_session(tmp_path: Path) -> None:
    options, mode, traces = SessionOptions(), TraceMode(), GraphTraces()
    compiler = Compiler(options, mode, traces)
    seen = []

    class Watched(Doubled):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            seen.append(mode.tracing)
            return super().forward(value)

    options.setup(Arguments(output_folder=str(tmp_path / "set_up"), arch="sn40"))
    value = samba.ones(3, name="value")
    path = compiler.compile(Watched(), (value,), pef_metadata={"by": "me"})
    assert Path(path) == tmp_path / "set_up" / "watched" / "watched.pef"
    assert (manifest(path).target.name, manifest(path).metadata["by"]) == ("sn40l", "me")
    assert seen[0] is True
    assert mode.tracing is False
    output = tmp_path / "other.pef"
    path = compiler.compile(Doubled(), (value,), config_dict={"arch": "sn30"}, output=output)
    assert (Path(path).name, manifest(path).target.name) == ("other.pef", "sn30")
    with pytest.raises(UsageError, match="no graphs to compile"):
        compiler.compile_multigraph()


def test_where_the_pef_went_is_logged_as_by_sambaflow(
    session: SambaSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "samba_onnx.sessions.compiler"):
        path = compiled(session, output=tmp_path / "there" / "m.pef")
    assert caplog.messages[-2:] == [
        f"PEF file {path} created",
        f"Logs are generated in {path.parent}",
    ]


@pytest.mark.parametrize("check", [True, False])
def test_an_onnx_model_has_the_shapes_and_metadata_of_its_compilation(
    session: SambaSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    if not check:
        monkeypatch.setattr("samba_onnx.sessions.onnx_compiling.convert_compared", pytest.fail)
    inputs = {"x": samba.randn(2, 4), "shift": samba.randn(3)}
    output = tmp_path / "m.pef"
    made = session.compile(gemm(), inputs, output=output, check=check, metadata={"mine": 1})
    assert made == str(output)
    one = manifest(made)
    assert one.reference is None
    assert one.metadata["mine"] == "1"
    assert {symbol.name: symbol.shape for symbol in one.symbols}["z"] == (2, 3)
    samba.utils.trace_graph(gemm(), inputs, pef=made)


def test_an_onnx_model_is_compared_where_all_inputs_have_values(
    session: SambaSession, tmp_path: Path
) -> None:
    def notes(*inputs: samba.SambaTensor) -> str:
        return " ".join(manifest(session.compile(gemm(), inputs, output=tmp_path / "m.pef")).notes)

    x, shift = samba.randn(2, 4, name="x"), samba.randn(3, name="shift")
    lazy = samba.SambaTensor(
        shape=(3,), name="shift", materializer=lambda tensor: torch.ones(tensor.shape)
    )
    empty = samba.SambaTensor(shape=(3,), dtype=torch.float32, name="shift")
    assert notes(x, lazy) == notes(x, shift)
    assert "values of its own" not in notes(x, shift)
    # The original cannot run with some of its inputs.
    assert "on values of its own for 'x', 'shift'" in notes(x, empty)
