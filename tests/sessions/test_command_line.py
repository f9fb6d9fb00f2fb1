"""What a program was started with counts where ``compile`` and ``trace_graph`` are told nothing."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pydantic import BaseModel

import samba_onnx as samba
from samba_onnx.errors import NotTracedError, UsageError
from samba_onnx.pef import load_pef
from samba_onnx.pef.hints import HINTS_KEY, describe_hints, write_hints
from samba_onnx.report import Report
from samba_onnx.sessions import SambaSession
from samba_onnx.sessions.arguments import ARGUMENTS
from tests.sessions.modules import Doubled


class Settings(BaseModel):
    pef_name: str


@pytest.fixture(autouse=True)
def no_command_line(session: SambaSession) -> Iterator[None]:
    yield
    session.set_command_line({})


def doubled(session: SambaSession, **options: object) -> str:
    return session.compile(Doubled(), (samba.ones(3, name="value"),), **options)


def test_the_command_line_names_the_pef_where_nobody_else_does(
    session: SambaSession, tmp_path: Path
) -> None:
    session.set_command_line(Namespace(output_folder=str(tmp_path), pef_name="parsed"))
    assert doubled(session) == str(tmp_path / "parsed" / "parsed.pef")
    session.reset()
    assert doubled(session) == str(tmp_path / "parsed" / "parsed.pef")
    session.setup(Settings(pef_name="set_up"))
    assert doubled(session) == str(tmp_path / "set_up" / "set_up.pef")
    assert doubled(session, config_dict={"pef_name": "x"}) == str(tmp_path / "x" / "x.pef")
    with pytest.raises(UsageError, match="settings are str"):
        session.set_command_line("--pef-name x")  # type: ignore[arg-type]


def test_the_pef_of_the_command_line_is_loaded_where_no_other_is(
    session: SambaSession, tmp_path: Path
) -> None:
    inputs = (samba.ones(3, name="value"),)
    path = doubled(session, output=tmp_path / "a.pef")
    with pytest.raises(NotTracedError, match="--pef"):
        samba.utils.trace_graph(Doubled(), inputs)
    session.set_command_line({"pef": path})
    (output,) = samba.utils.trace_graph(Doubled(), inputs)
    torch.testing.assert_close(session.run(inputs, output)[0].torch(), torch.full((3,), 2.0))
    session.set_command_line({"pef": "missing.pef"})
    samba.utils.trace_graph(Doubled(), inputs)


def test_inference_leaves_optimizers_out_on_both_sides(
    session: SambaSession, tmp_path: Path
) -> None:
    model = torch.nn.Linear(3, 2)
    samba.from_torch_model_(model)
    inputs = (samba.ones(1, 3, name="value"),)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    training = session.compile(model, inputs, optimizer, output=tmp_path / "training.pef")
    session.set_command_line({"inference": True})
    path = session.compile(model, inputs, optimizer, output=tmp_path / "forward.pef")
    samba.utils.trace_graph(model, inputs, optimizer, pef=path)
    assert session.get_section_types() == {"FWD"}
    samba.utils.trace_graph(model, inputs, optimizer, pef=training)
    assert "OPT" in session.get_section_types()
    session.set_command_line({})
    with pytest.raises(UsageError, match="compiled for inference"):
        samba.utils.trace_graph(model, inputs, optimizer, pef=path)


def test_hints_are_kept_and_listed(session: SambaSession, tmp_path: Path) -> None:
    session.set_command_line({"mac_v2": True, "n_chips": 1, "num_tiles": None, "lr": 0.1})
    path = doubled(session, output=tmp_path / "x.pef", config_dict={"num_tiles": 4})
    with load_pef(path) as pef:
        assert pef.manifest.metadata[HINTS_KEY] == '{"num_tiles": 4, "mac_v2": true}'
        notes = Report.from_manifest(pef.manifest).notes
    assert (
        notes[-1]
        == "Hints to SambaFlow's compiler, which have no effect here: num_tiles=4, mac_v2."
    )
    session.set_command_line({})
    with load_pef(doubled(session, output=tmp_path / "y.pef")) as pef:
        assert HINTS_KEY not in pef.manifest.metadata


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "3"])
def test_what_is_no_record_of_hints_is_left_out(text: str) -> None:
    assert describe_hints({HINTS_KEY: text}) == ()


def test_a_hint_that_json_does_not_have_is_kept_as_text() -> None:
    assert describe_hints(write_hints({"path": Path("a")}))[0].endswith('path="a".')


def test_every_argument_has_one_row_and_its_own_flags() -> None:
    names = [argument.name for argument in ARGUMENTS]
    assert len(names) == len(set(names))
    flags = [flag for argument in ARGUMENTS for flag in argument.options]
    assert len(flags) == len(set(flags))
    assert "-e" not in flags, "programs define it for their epochs"
    assert all(
        argument.default in (*argument.choices, None) for argument in ARGUMENTS if argument.choices
    )
