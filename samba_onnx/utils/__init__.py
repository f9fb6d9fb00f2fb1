"""SambaFlow's helpers: tracing, measuring and comparing models, seeds, files, processes."""

from samba_onnx.tensor import set_seed
from samba_onnx.utils.affinity import fix_rdu_affinity
from samba_onnx.utils.comparing import assert_close
from samba_onnx.utils.files import get_file_dir
from samba_onnx.utils.measuring import measure_performance, measure_sections
from samba_onnx.utils.processes import get_rank, get_world_size, is_main_process
from samba_onnx.utils.tracing import init_output_grads, trace_graph, trace_multigraph
from samba_onnx.utils.weight_normalisation import weight_norm_

__all__ = [
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
    "weight_norm_",
]
