"""What may be asked of several devices."""

from __future__ import annotations

from typing import Final

import torch

from samba_onnx.errors import UsageError

MODES: Final = ("normal", "inorder", "optimal")


def check_data_parallel(data_parallel: bool, mode: str, reduce_on_rdu: bool) -> None:
    """Refuse what cannot be done.

    Args:
        data_parallel: Whether several devices are to work together.
        mode: Name of the way in which devices share the work, one of ``MODES``.
        reduce_on_rdu: Where gradients are added up; without effect on one device.

    Raises:
        UsageError: There is no such mode, no group of processes, or one of several.
    """
    del reduce_on_rdu
    if mode not in MODES:
        raise UsageError(f"data_parallel_mode is {mode!r}; give one of {', '.join(MODES)}")
    if not data_parallel:
        return
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise UsageError(
            "data_parallel=True needs a group of processes, one per device: call "
            "torch.distributed.init_process_group first, or leave data_parallel out"
        )
    if torch.distributed.get_world_size() > 1:
        raise UsageError(
            f"data_parallel=True with {torch.distributed.get_world_size()} processes: gradients of "
            "several devices cannot be added up yet; run one process"
        )
