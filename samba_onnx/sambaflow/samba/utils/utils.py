"""``sambaflow.samba.utils.utils``: where the documentation places the functions of ``utils``."""

from samba_onnx.functional import SNType
from samba_onnx.utils import (
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

__all__ = [
    "SNType",
    "assert_close",
    "fix_rdu_affinity",
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
]
