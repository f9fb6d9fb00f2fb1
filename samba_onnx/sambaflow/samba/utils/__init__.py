"""``sambaflow.samba.utils``: what programs are built from around the session."""

from samba_onnx.sambaflow.samba.utils import argparser, common, utils
from samba_onnx.sambaflow.samba.utils.utils import (
    SNType,
    assert_close,
    get_file_dir,
    get_rank,
    get_world_size,
    init_output_grads,
    is_main_process,
    measure_performance,
    measure_sections,
    set_seed,
    trace_graph,
    trace_multigraph,
)

__all__ = [
    "SNType",
    "argparser",
    "assert_close",
    "common",
    "get_file_dir",
    "get_rank",
    "get_world_size",
    "init_output_grads",
    "is_main_process",
    "measure_performance",
    "measure_sections",
    "set_seed",
    "trace_graph",
    "trace_multigraph",
    "utils",
]
