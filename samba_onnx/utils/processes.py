"""The place of this process in a group of processes that share the work."""

from __future__ import annotations

from torch import distributed


def get_rank() -> int:
    """Return the number of this process in its group; 0 without a group."""
    return distributed.get_rank() if _in_group() else 0


def get_world_size() -> int:
    """Return the number of processes in the group; 1 without a group."""
    return distributed.get_world_size() if _in_group() else 1


def is_main_process() -> bool:
    """Return whether this is process 0."""
    return get_rank() == 0


def agreed(value: bool) -> bool:
    """Return what process 0 says, which all processes of the group ask at the same time.

    Args:
        value: What this process would say.
    """
    if get_world_size() == 1:
        return value
    # Process 0 sends what it has in the list, and all others get theirs replaced.
    box = [value]
    distributed.broadcast_object_list(box, 0)
    return box[0]


def _in_group() -> bool:
    # A torch that was built without it lacks the second function.
    return distributed.is_available() and distributed.is_initialized()
