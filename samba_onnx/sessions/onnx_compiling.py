"""Compiling ONNX models that only run forward."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from samba_onnx.compiling.compared_conversion import convert_compared
from samba_onnx.compiling.compiler import convert
from samba_onnx.compiling.options import CompileOptions
from samba_onnx.compiling.torch.session_records import GraphRecord, write_records
from samba_onnx.facts.roundings import write_rounding
from samba_onnx.program.program import DEFAULT_GRAPH
from samba_onnx.sessions.onnx_models import input_symbols, onnx_fingerprint
from samba_onnx.tensor.arrays import to_array


def compile_onnx(
    model: Any,
    inputs: Any,
    path: os.PathLike[str],
    texts: Mapping[str, str],
    options: CompileOptions,
    *,
    check: bool,
) -> None:
    """Compile an ONNX model into a PEF.

    Args:
        model: The model, or the path to it.
        inputs: Example inputs, by name or in the model's order.
        path: Where the PEF goes.
        texts: Metadata for it.
        options: How to compile.
        check: Compare what was compiled with the model, where the inputs have values.

    Raises:
        ModelError: It cannot be compiled.
        OutputError: The PEF cannot be written.
    """
    names = onnx_fingerprint(model, {})[1]
    symbols = input_symbols(names, inputs)
    shapes = {name: tuple(tensor.shape) for name, tensor in symbols.items()}
    print_, _ = onnx_fingerprint(model, shapes)
    # What is rounded at random is told, and is none of what an ONNX model has.
    roundings = dict.fromkeys(sorted(options.numbers.stochastic_rounding), 0)
    records = write_records({DEFAULT_GRAPH: GraphRecord(print_.text())})
    metadata = {**texts, **write_rounding(roundings), **records}
    # No random sample: what is compared is a run with the example inputs.
    options = options.replace(stochastic_rounding=None, input_shapes=shapes, sample=False)
    if not check:
        convert(model, path, options=options, metadata=metadata).close()
        return
    valued = [tensor.has_data or tensor.materializer_provided for tensor in symbols.values()]
    # Values are needed of all inputs: the original model cannot run with some of them.
    missing = "" if all(valued) else "an input has no values"
    arrays = {} if missing else {name: to_array(tensor) for name, tensor in symbols.items()}
    convert_compared(model, path, arrays, missing, options=options, metadata=metadata)
