"""The session: parts of one's own for each, one device for all, and a new start in place."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

import pytest

import samba_onnx as samba
from samba_onnx.errors import NotTracedError, PefError
from samba_onnx.sessions import SESSION, SambaSession
from tests.sessions.conftest import Compiled


def test_the_class_is_one_and_only_forwards() -> None:
    assert SambaSession.__mro__ == (SambaSession, object)
    (class_,) = ast.parse(textwrap.dedent(inspect.getsource(SambaSession))).body
    assert isinstance(class_, ast.ClassDef)
    methods = [node for node in class_.body if isinstance(node, ast.FunctionDef)]
    assert len(methods) > 50
    for method in methods:
        assert ast.get_docstring(method) or method.name == "tracing", method.name
        nodes = [node for statement in method.body for node in ast.walk(statement)]
        assert not any(isinstance(node, (ast.For, ast.While, ast.Try)) for node in nodes)
        if method.name != "__init__":
            assert len(method.body) <= 4, method.name


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
