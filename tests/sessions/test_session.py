"""The session: parts of one's own for each, one device for all, and a new start in place."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import samba_onnx as samba
from samba_onnx.errors import NotTracedError, PefError
from samba_onnx.sessions import SESSION, SambaSession
from samba_onnx.sessions import session as session_file
from tests.sessions.conftest import Compiled

CALLS = {
    name: getattr(SambaSession, name)
    for name, value in vars(SambaSession).items()
    if hasattr(value, "__wrapped__")
    and getattr(SambaSession, name).__module__ != session_file.__name__
}
"""The calls that stand on parts, or are functions; not what the class does itself."""


def test_every_call_is_of_the_part_that_it_names() -> None:
    assert len(CALLS) > 45
    session = SambaSession()
    for name, call in CALLS.items():
        named = inspect.getclosurevars(call).nonlocals
        if place := named.get("of"):
            owner = type(vars(session)[place])
            assert named["method"] is inspect.getattr_static(owner, named["method"].__name__), name


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_signature_and_the_documentation_of_its_part(name: str) -> None:
    call = CALLS[name]
    part = inspect.unwrap(getattr(call, "__func__", call))
    assert inspect.getdoc(call) == inspect.getdoc(part)
    assert name.startswith("_") or call.__name__ == part.__name__ == name
    parameters = list(inspect.signature(getattr(SESSION, name)).parameters.values())
    own = list(inspect.signature(part).parameters.values())
    assert parameters == own[len(own) - len(parameters) :]
    assert [each.name for each in own[: len(own) - len(parameters)]] in ([], ["self"])


def test_a_call_reaches_the_part_of_its_own_session() -> None:
    one, other = SambaSession(), SambaSession()
    one.enable_pinned_memory()
    one.create_dynamic_dim("rows", max=4, min=1)
    SambaSession.add_aux_tensor(one, samba.ones(1), name="mine")
    assert (one.use_pinned_memory(), other.use_pinned_memory()) == (True, False)
    assert (len(one.dynamic_dims), len(other.dynamic_dims)) == (1, 0)
    assert other.is_valid_aux_tensor_name("mine")
    assert not one.is_valid_aux_tensor_name("mine")
    with pytest.raises(
        TypeError, match=r"switch_rounding\(\) got an unexpected keyword argument 'off'"
    ):
        one.switch_rounding("steps", off=True)  # type: ignore[call-arg]


def test_a_session_may_begin_with_a_pef(compiled: Compiled, tmp_path: Path) -> None:
    session = SambaSession(compiled.path)
    assert session.get_section_types() == {"FWD"}
    assert len(session.get_weight_names()) == 4
    with pytest.raises(NotTracedError):
        samba.session.get_section_types()
    with pytest.raises(PefError):
        SambaSession(str(tmp_path))
    session._program.close()


def test_reset_is_a_new_start_in_place(session: SambaSession, compiled: Compiled) -> None:
    compiled.trace()
    session.tracing = True
    session.enable_pinned_memory()
    session.add_aux_tensor(samba.ones(1), "mine")
    weights = session.tensor_dict["weights"]
    assert weights
    session.reset()
    assert samba.session is session is SESSION
    assert weights == {}
    assert (session.tracing, session.use_pinned_memory()) == (False, False)
    assert session.is_valid_aux_tensor_name("mine")
    assert session.transfers.count == 0
    session.reset(compiled.path)
    assert session.get_section_types() == {"FWD"}
