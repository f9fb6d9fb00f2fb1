"""The documented names of SambaFlow exist, with the documented parameters and defaults."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

import samba_onnx as samba
from samba_onnx.graph import FwdGraph, SambaGraph
from samba_onnx.sessions import SambaSession

SESSION = {
    "__init__": "pef_path=''",
    "add_graph": "graph, overwrite=False",
    "atexit_register": "func, *args, **kwargs",
    "compile": "model, inputs, optimizers=None, name='', loss_indices=None, io_host_memory=None",
    "compile_multigraph": "name='', samba_only=False, **kwarg",
    "disable_graphamp": "",
    "disable_lazy_param": "",
    "disable_pinned_memory": "",
    "enable_lazy_param": "seed=None, init_threads=8, inverse_transform_sampling=False, "
    "fp32_to_bf16_rounding='nearest_even'",
    "enable_pinned_memory": "",
    "end_runtime_profile": "log_file='cprofile_tmp.log'",
    "end_samba_profile": "filename=None",
    "get_argin_names": "",
    "get_dropout_rate_argin_names": "",
    "get_dropout_seed_argin_names": "",
    "get_samba_tensor_by_name": "name",
    "get_section_types": "",
    "get_tensors": "samba_tensors",
    "get_tensors_by_name": "names",
    "get_weight_names": "",
    "init_multigraph_runtime": "pef, transfer_device=True",
    "reset": "pef_path=''",
    "reset_random_generator": "",
    "run": "input_tensors=None, output_tensors=(), hyperparam_dict={}, data_parallel=False, "
    "reduce_on_rdu=False, section_ids=(), section_types=(), run_until_call_id=None, "
    "run_from_call_id=None, data_parallel_mode='normal', train=True",
    "samba_profile": "filename=None",
    "setup": "args",
    "start_runtime_profile": "timer_enabled=True",
    "start_samba_profile": "",
    "sync_buffers_to_cpu": "model, inplace=False",
    "sync_buffers_to_rdu": "model",
    "to_cpu": "model, optims=None, inplace=False",
    "to_cpu_": "model, optims=None",
    "to_device": "",
    "to_rdu": "model, optims=None",
    "update_tensor": "name, tensor",
    "use_abexit": "func, *args, **kwargs",
    "use_lazy_param": "",
    "use_legacy_names": "use",
    "use_pinned_memory": "",
    "use_static_functional": "",
}
STATIC = {"disable_lazy_param", "reset", "use_lazy_param", "use_legacy_names"}
OF_THE_CLASS = {"sync_buffers_to_cpu", "sync_buffers_to_rdu", "to_cpu", "to_cpu_", "to_rdu"}
SESSION_PROPERTIES = {"profiler": False, "tracing": True}
"""Whether each can be set; programs set ``tracing``, which is documented as read-only."""

TENSOR = {
    "__new__": "torch_tensor=None, shape=None, dtype=None, name=None, batch_dim=None, "
    "named_dims=None, sized_dims=None, materializer=None, is_complex=None, region_name=None",
    "__getitem__": "x",
    "__setitem__": "x, update",
    "backward": "gradient=None, retain_graph=None",
    "clear_data": "",
    "cpu": "inplace=False",
    "cpu_": "",
    "is_fast_access": "name",
    "materialize_": "",
    "new_full": "size, fill_value, dtype=None, device=None, requires_grad=False",
    "rdu": "",
    "requires_grad_": "requires_grad=True",
    "reusable": "",
    "torch": "",
    "torch_tensor": "",
    "type": "dtype=None, non_blocking=False, **kwargs",
    "type_as": "tensor",
}
NEW = [
    {"size": 2},
    {"size": [2, 3], "dtype": None, "requires_grad": False},
    {"size": (2,), "dtype": torch.float64, "requires_grad": True},
]
ALONE: list[dict[str, Any]] = [{}]
ALONG_A_DIMENSION: list[dict[str, Any]] = [{}, {"dim": None}, {"dim": 1}]
ARGUMENTS_OF_TORCH_METHODS: dict[str, list[dict[str, Any]]] = {
    "bfloat16": ALONE,
    "bool": ALONE,
    "data_ptr": ALONE,
    "dim": ALONE,
    "element_size": ALONE,
    "float": ALONE,
    "int": ALONE,
    "is_floating_point": ALONE,
    "item": ALONE,
    "long": ALONE,
    "ndimension": ALONE,
    "nelement": ALONE,
    "new_empty": NEW,
    "new_ones": NEW,
    "new_zeros": NEW,
    "numel": ALONE,
    "short": ALONE,
    "size": ALONG_A_DIMENSION,
    "stride": ALONG_A_DIMENSION,
    "to": [{"dtype": torch.int16}],
    "view_as": [{"other": torch.zeros(1)}],
}
"""torch's methods have no signature that Python could show, so they are called."""
TENSOR_PROPERTIES = {
    "T": False,
    "data": True,
    "device": False,
    "dtype": False,
    "fast_access": True,
    "grad": True,
    "materializer": True,
    "materializer_provided": False,
    "ndim": False,
    "requires_grad": True,
    "shape": False,
    "sn_data": True,
    "sn_grad": True,
    "sn_grad_name": False,
    "sn_name": True,
    "sn_region_name": True,
}
"""Whether each can be set."""

UTILITIES = {
    "init_output_grads": "output_tensors, unspecified_tensor_grad=(), customized_tensors_dict={}, "
    "is_variable_batch_size=False",
    "trace_graph": "model, inputs, optim=None, init_output_grads=True, loss_indices=None, pef='', "
    "mapping='section', data_parallel_mode='normal', transfer_device=True",
    "trace_multigraph": "graph, inputs, optimizers=None, init_output_grads=None, mapping='', "
    "trace_prefix=None",
}
FUNCTIONS = {
    "from_torch_tensor": "tensor, name=None, batch_dim=None, named_dims=None, region_name=None",
    "from_torch_model_": "model, parent_module_prefix=None",
    "to_torch": "obj",
}
GRAPHS = {SambaGraph: "inputs, outputs, name=''", FwdGraph: "inputs, outputs, name=''"}


def plain(value: Any) -> Any:
    """Defaults that mean the same are equal: empty sequences, empty mappings."""
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return dict(value) if isinstance(value, Mapping) else value


def documented(text: str) -> tuple[list[tuple[str, Any]], bool]:
    """Names and defaults of a parameter list, and whether it takes any keyword."""
    arguments = ast.parse(f"def f({text}): ...").body[0].args  # type: ignore[attr-defined]
    names = [argument.arg for argument in arguments.args]
    values = [ast.literal_eval(value) for value in arguments.defaults]
    required = [inspect.Parameter.empty] * (len(names) - len(values))
    pairs = list(zip(names, [*required, *values], strict=True))
    return pairs, arguments.kwarg is not None


def check(function: Callable[..., Any], text: str, *, bound: bool) -> None:
    """A function takes what is documented, in that order, and more only if nobody must give it."""
    wanted, any_keyword = documented(text)
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = [(p.name, plain(p.default)) for p in positional]
    assert given[: len(wanted)] == [(name, plain(value)) for name, value in wanted]
    rest = [p for p in parameters if p not in positional[: len(wanted)]]
    assert all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in rest
    )
    assert not any_keyword or any(p.kind is p.VAR_KEYWORD for p in parameters)
    assert (inspect.getdoc(function) or "").strip(), "has no docstring"


@pytest.mark.parametrize("name", SESSION)
def test_methods_of_the_session(name: str) -> None:
    kind = inspect.getattr_static(SambaSession, name)
    assert isinstance(kind, staticmethod) == (name in STATIC)
    assert isinstance(kind, classmethod) == (name in OF_THE_CLASS)
    bound = name not in STATIC | OF_THE_CLASS
    check(getattr(SambaSession, name), SESSION[name], bound=bound)


@pytest.mark.parametrize("name", TENSOR)
def test_methods_of_tensors(name: str) -> None:
    static = isinstance(inspect.getattr_static(samba.SambaTensor, name), staticmethod)
    assert static == (name in ("__new__", "is_fast_access"))
    bound = name != "is_fast_access"
    check(getattr(samba.SambaTensor, name), TENSOR[name], bound=bound)


@pytest.mark.parametrize("name", ARGUMENTS_OF_TORCH_METHODS)
def test_methods_of_tensors_that_are_those_of_torch(name: str) -> None:
    tensor = samba.SambaTensor(torch.ones(1, 1))
    method = getattr(tensor, name)
    for arguments in ARGUMENTS_OF_TORCH_METHODS[name]:
        made = method(**arguments)
        if isinstance(made, torch.Tensor):
            assert isinstance(made, samba.SambaTensor)
            assert made.requires_grad == arguments.get("requires_grad", False)
            if "dtype" in arguments:
                assert made.dtype == (arguments["dtype"] or torch.float32)
    assert (inspect.getdoc(method) or "").strip(), "has no docstring"


@pytest.mark.parametrize(
    ("owner", "name", "settable"),
    [
        *((SambaSession, name, settable) for name, settable in SESSION_PROPERTIES.items()),
        *((samba.SambaTensor, name, settable) for name, settable in TENSOR_PROPERTIES.items()),
    ],
)
def test_properties(owner: type, name: str, settable: bool) -> None:
    found = inspect.getattr_static(owner, name)
    assert inspect.isdatadescriptor(found)
    if isinstance(found, property):
        assert (found.fset is not None) == settable
    of_torch = getattr(found, "__objclass__", None) is torch._C.TensorBase
    assert of_torch or (inspect.getdoc(found) or "").strip(), "has no docstring"


@pytest.mark.parametrize("name", UTILITIES)
def test_utilities(name: str) -> None:
    check(getattr(samba.utils, name), UTILITIES[name], bound=False)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    check(getattr(samba, name), FUNCTIONS[name], bound=False)


@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs(kind: type) -> None:
    check(kind.__init__, GRAPHS[kind], bound=True)
