"""Torch as it has to be while a module is traced: functions and reports of its own, changed for that long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from samba_onnx.export.capture.assignments import AssignedBuffers, written_back
from samba_onnx.export.capture.branches import Values
from samba_onnx.export.capture.capture_refusals import refused_calls
from samba_onnx.export.capture.checkpointed_calls import plain_checkpoints
from samba_onnx.export.capture.fixed_sizes import fixed_sizes
from samba_onnx.export.capture.host_randomness import refused_host_randomness
from samba_onnx.export.capture.running_statistics import followed_statistics
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.capture.torch_reports import without_reports
from samba_onnx.export.capture.whole_layers import whole_layers
from samba_onnx.export.decomposition.tracing_logs import without_tracebacks

__all__ = ["torch_as_it_is_traced"]


@contextlib.contextmanager
def torch_as_it_is_traced(
    module: nn.Module, values: Values, assigned: AssignedBuffers
) -> Iterator[None]:
    """Change functions and reports of torch's within the context, as tracing needs them.

    Args:
        module: What is traced.
        values: Answers questions for values of tensors.
        assigned: Learns which buffers are assigned.
    """
    with (
        samba_calls(),
        without_reports(),
        values.replayed(),
        whole_layers(),
        refused_calls(),
        fixed_sizes(),
        refused_host_randomness(module),
        without_tracebacks(),
        followed_statistics(),
        written_back(module, assigned),
        plain_checkpoints(),
    ):
        yield
