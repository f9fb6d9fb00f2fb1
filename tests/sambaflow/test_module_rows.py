"""Modules that are made of rows behave as those that are files: reloaded, copied, pickled, looked into."""

from __future__ import annotations

import importlib
import inspect
import pickle  # noqa: TID251  what programs and DataLoaders do with objects of these modules
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from samba_onnx import functional, utils
from samba_onnx.errors import UnsupportedSymbolError
from samba_onnx.facts.sambaflow_names import MODULES
from samba_onnx.operator_names import TORCH_OPERATORS
from samba_onnx.sambaflow.module_rows import SambaFlowModule

pytestmark = pytest.mark.usefixtures("sambaflow")

MADE = sorted(name for name, row in MODULES.items() if not row.code)
OPERATORS = ["arithmetic", "logical", "loss", "reduce", "tensorarithmetic", "tensorops"]


@pytest.mark.parametrize("name", MADE)
def test_names_are_the_objects_of_their_rows(name: str) -> None:
    module = importlib.import_module(name)
    assert isinstance(module, SambaFlowModule)
    assert (module.__doc__ or "").startswith(f"``{name}``: ")
    for theirs, home, ours in MODULES[name].sources():
        assert getattr(module, theirs) is getattr(importlib.import_module(home), ours)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_is_loaded_again_in_its_place(name: str) -> None:
    if name == "sambaflow" or (MODULES[name].code and name != "sambaflow.samba.utils.numeric"):
        # Files are loaded again by Python itself; their classes would be others than those of the
        # modules that have imported them, for all tests that follow.
        return
    module = importlib.import_module(name)
    public = list(module.__all__)
    assert importlib.reload(module) is module
    assert sys.modules[name] is module
    assert module.__all__ == public
    assert all(hasattr(module, entry) for entry in public)


def test_what_a_program_sets_is_set_under_both_names() -> None:
    helpers: Any = importlib.import_module("sambaflow.samba.utils")
    original = helpers.trace_graph
    helpers.trace_graph = len
    try:
        assert importlib.import_module("samba_onnx.sambaflow.samba.utils").trace_graph is len
    finally:
        helpers.trace_graph = original


def test_helpers_are_all_of_them() -> None:
    helpers = importlib.import_module("sambaflow.samba.utils.utils")
    assert {*helpers.__all__} == {*utils.__all__, "SNType", "create_mac_resource_report"}
    assert {*helpers.__all__} < {*importlib.import_module("sambaflow.samba.utils").__all__}


@pytest.mark.parametrize("part", OPERATORS)
def test_a_part_has_its_operators(part: str) -> None:
    module = importlib.import_module(f"sambaflow.samba.functional.{part}")
    assert module.__all__ == sorted(TORCH_OPERATORS[part])
    assert all(getattr(module, name) is getattr(functional, name) for name in module.__all__)
    with pytest.raises(AttributeError, match=rf"'sambaflow\.samba\.functional\.{part}' has no"):
        _ = module.nonsense


def test_objects_are_pickled_by_either_name() -> None:
    mnist = importlib.import_module("sambaflow.samba.utils.dataset.mnist")
    transform = mnist.dataset_transform({"num_features": 784})
    assert pickle.loads(pickle.dumps(transform)) == transform
    # As files say that were written when the class was in a module of that name.
    older = b"csamba_onnx.sambaflow.samba.utils.dataset.mnist\nFlatImage\n."
    assert pickle.loads(older) is mnist.FlatImage
    assert (
        pickle.loads(b"csambaflow.samba.optim.adam\nAdamW\n.")
        is importlib.import_module("samba_onnx.optim").AdamW
    )


def test_the_source_of_functions_is_found() -> None:
    parser = importlib.import_module("sambaflow.samba.utils.argparser")
    assert inspect.getsource(parser.parse_app_args).startswith("def parse_app_args(")
    assert inspect.getsource(parser).startswith('"""``sambaflow.samba.utils.argparser``')
    helpers = importlib.import_module("sambaflow.samba.utils")
    assert inspect.getsource(helpers.trace_graph).startswith("def trace_graph(")
    # A module that is no file is written in the table.
    assert "class ModuleRow" in inspect.getsource(helpers)


def test_modules_of_torch_are_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = importlib.import_module("sambaflow.samba.nn")
    assert layers.Linear is nn.Linear
    monkeypatch.setattr(nn, "Linear", nn.Bilinear)
    assert layers.Linear is nn.Bilinear


def test_what_a_home_imports_for_itself_is_no_name() -> None:
    samba = importlib.import_module("sambaflow.samba")
    for name in ("errors", "importlib", "_HOMES", "__wrapped__"):
        with pytest.raises(AttributeError, match=rf"'sambaflow\.samba' has no attribute '{name}'"):
            getattr(samba, name)
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from sambaflow.samba.optim import nonsense")


def test_everything_below_a_package_is_reached_without_an_import() -> None:
    code = (
        "from samba_onnx.sambaflow import install; install()\n"
        "import sambaflow.samba as samba\n"
        "print(samba.utils.argparser.parse_app_args.__name__, samba.utils.dataset.mnist.__name__)\n"
        "from sambaflow.samba.utils import *\n"
        "print(trace_graph.__name__, argparser.__name__, checkpoint.__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert done == [
        *("parse_app_args", "samba_onnx.sambaflow.mnist", "trace_graph"),
        *("samba_onnx.sambaflow.argparser", "samba_onnx.sambaflow.checkpoint"),
    ]


def test_the_refused_are_classes_of_their_module() -> None:
    module: ModuleType = importlib.import_module("sambaflow.samba.optim")
    assert module.Adagrad.__module__ == "sambaflow.samba.optim"
    with pytest.raises(UnsupportedSymbolError, match=r"^sambaflow\.samba\.optim\.Adagrad is not"):
        module.Adagrad()
