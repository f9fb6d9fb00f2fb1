"""``sambaflow.samba.utils``: what programs are built from around the session."""

from typing import Never

from samba_onnx.sambaflow.samba.utils import (
    argparser,
    benchmark_acc,
    common,
    numeric,
    pef_utils,
    utils,
)
from samba_onnx.sambaflow.samba.utils.utils import (
    SNType,
    assert_close,
    fix_rdu_affinity,
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
from samba_onnx.sambaflow.symbols import absent

__all__ = [
    "SNType",
    "argparser",
    "assert_close",
    "benchmark_acc",
    "common",
    "fix_rdu_affinity",
    "get_file_dir",
    "get_rank",
    "get_world_size",
    "init_output_grads",
    "is_main_process",
    "measure_performance",
    "measure_sections",
    "numeric",
    "pef_utils",
    "set_seed",
    "trace_graph",
    "trace_multigraph",
    "utils",
]


def __getattr__(name: str) -> Never:
    """Say of a name that is not here what to do without it."""
    raise absent("sambaflow.samba.utils", name)
