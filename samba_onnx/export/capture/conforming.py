"""What a graph of torch's must be before it is translated: without writing in place, of fixed sizes."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from samba_onnx.errors import ModelError
from samba_onnx.export.naming import refused
from samba_onnx.safety.collecting import collections_deferred

__all__ = ["check_constants", "check_sizes", "decomposed", "written_constant"]


def check_sizes(graph_module: fx.GraphModule, *, numbers: bool = True) -> None:
    """Refuse tensors whose sizes are known only when the graph runs.

    Args:
        graph_module: A graph of ATen operators.
        numbers: Whether to refuse numbers that are known only then, too, as sizes that tensors can
            have. What users write for a backward may compute with them.

    Raises:
        ModelError: There is such a tensor.
    """
    for inner in graph_module.children():
        if isinstance(inner, fx.GraphModule):
            check_sizes(inner, numbers=numbers)
    for node in graph_module.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            # Times a truth value: no sizes at all where lone numbers are let be.
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,) * numbers
            if any(
                isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in sizes
            ):
                raise refused(
                    node,
                    " returns sizes that depend on values of tensors: a compiled graph has fixed "
                    "sizes, so use a mask of a fixed size instead",
                )


def check_constants(graph_module: fx.GraphModule, constants: Mapping[str, torch.Tensor]) -> None:
    """Refuse constants without content: what torch kept for a gradient that ``forward`` computes.

    Args:
        graph_module: A graph of ATen operators.
        constants: Tensors that it holds, by placeholder.

    Raises:
        ModelError: There is such a constant; the message names the line that needs it.
    """
    for node in graph_module.graph.find_nodes(op="placeholder"):
        content = constants.get(node.name)
        # A constant that nothing reads does no harm.
        if isinstance(content, FakeTensor) and content.constant is None and node.users:
            raise refused(
                next(iter(node.users)),
                " computes a gradient inside forward, which can be compiled for training only: "
                "write the derivative with operators",
            )


@collections_deferred()
def decomposed(program: ExportedProgram) -> ExportedProgram:
    """Let torch make a program functional.

    Args:
        program: As ``torch.export`` returned it.

    Raises:
        ModelError: The module writes into a tensor that it has not registered.
    """
    # What depends on values is decomposed as well as it goes, and without the lines of blocks.
    _place_blocks(program.graph_module)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _content(program.constants) as missing:
                functional: ExportedProgram = program.run_decompositions({})
            # The new program has constants of its own, with the zeros among them.
            functional.constants.update(missing)
            return functional
    except RuntimeError as error:
        # torch has no class for this error, only its sentence.
        written = re.match(r"Constant (\S+) is mutated", str(error))
        if written is None:
            raise
        raise written_constant(written[1]) from error


def _place_blocks(graph_module: fx.GraphModule) -> None:
    """Let calls of graphs within the graph, as of what is under ``no_grad``, have the place of what these do.

    Torch takes them apart, gives each operator the place of the call, and leaves calls without any.
    """
    for node in graph_module.graph.nodes:
        if not isinstance(node.target, torch._ops.HigherOrderOperator):
            continue
        for operand in node.all_input_nodes:
            inner = operand.op == "get_attr" and getattr(graph_module, str(operand.target), None)
            if not isinstance(inner, fx.GraphModule):
                continue
            # Innermost first, so that a block of nothing but blocks finds a place, too.
            _place_blocks(inner)
            traces = (one.meta.get("stack_trace") for one in inner.graph.nodes)
            if trace := next(filter(None, traces), None):
                # A call that torch gave a place keeps it.
                node.meta.setdefault("stack_trace", trace)


@contextlib.contextmanager
def _content(constants: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give constants without content some zeros within the context, since torch computes with constants.

    They are what torch kept for a gradient that ``forward`` computes; nobody needs their values.

    Args:
        constants: Constants of a program by name; changed within the context.

    Yields:
        Those that had no content, as they were.
    """
    missing = {
        name: constant
        for name, constant in constants.items()
        if isinstance(constant, FakeTensor) and constant.constant is None
    }
    # Made outside of the mode of the fake tensor itself, or they would have no content either.
    constants.update(
        {n: torch.zeros(tuple(one.shape), dtype=one.dtype) for n, one in missing.items()}
    )
    try:
        yield missing
    finally:
        constants.update(missing)


def written_constant(path: str) -> ModelError:
    """Return what is raised for a write into a tensor that is no member of its module.

    Args:
        path: Where the module keeps the tensor.
    """
    return ModelError(
        f"the module writes into the tensor that it keeps as {path!r}, which is neither a "
        "parameter nor a buffer: register it with register_buffer"
    )
