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
from samba_onnx.sessions.calls.parts import SessionParts
from tests.sessions.conftest import Compiled

CLASSES = (SambaSession, *SambaSession.__bases__, SessionParts)


def methods_of(class_: type) -> list[ast.FunctionDef]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(class_))).body
    assert isinstance(node, ast.ClassDef)
    return [each for each in node.body if isinstance(each, ast.FunctionDef)]


def test_the_class_is_all_calls_by_subject_each_once() -> None:
    assert SambaSession.__mro__ == (*CLASSES, object)
    folder = Path(inspect.getfile(SessionParts)).parent
    files = {Path(inspect.getfile(class_)) for class_ in CLASSES[1:]}
    assert files == set(folder.glob("*.py")) - {folder / "__init__.py"}
    names = [{each.name for each in methods_of(class_)} for class_ in CLASSES]
    assert sum(map(len, names)) == len(set().union(*names)) > 50


@pytest.mark.parametrize("class_", CLASSES)
def test_calls_only_forward(class_: type) -> None:
    for method in methods_of(class_):
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
