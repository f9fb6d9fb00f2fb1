"""How replicas that torchrun starts again find each other, and nothing of those before.

``torchrun`` keeps one store for all its starts, and torch's own ``init_process_group`` reads there what
the processes of an earlier start left: addresses at which nobody answers any more. So that no
environment variable has to be set, the group of such a process is given a place of its own in the store.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import distributed_c10d
from torch.distributed.constants import default_pg_timeout

from samba_onnx.replicas.meeting import meet
from samba_onnx.version import __version__

__all__ = ["adapt_meeting", "launcher_keeps_store", "meeting_store", "start_afresh"]

_ENVIRONMENT: Final = "env://"
"""What torch takes an ``init_method`` for that nobody stated."""


def launcher_keeps_store(environment: Mapping[str, str]) -> bool:
    """Return whether a launcher keeps the store in which its processes meet, over all their starts."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def meeting_store(rank: int, size: int, timeout: timedelta) -> Store:
    """Return a store of this start alone, at the place that the launcher's variables name.

    Args:
        rank: The number of this process.
        size: How many there are.
        timeout: For which they wait for each other.

    Raises:
        UsageError: They differ in what must be the same.
        ReplicaError: Some do not come.
    """
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        None,
        rank == 0 and not launcher_keeps_store(os.environ),
        timeout,
        # The meeting itself waits, and can say who is missing.
        wait_for_workers=False,
        multi_tenant=True,
    )
    facts = {"samba_onnx": __version__, "torch": torch.__version__}
    return meet(PrefixStore("samba_onnx", store), rank, size, facts, alike=[*facts])[0]


def adapt_meeting(
    change: Callable[[dict[str, Any]], dict[str, Any]],
    module: str,
    then: Callable[[], object] | None = None,
) -> None:
    """Let ``torch.distributed.init_process_group`` begin with other arguments; the same module does so once.

    Args:
        change: Returns the arguments to begin with, of those that a program states, by name.
        module: The module that adapts it.
        then: Called when the group has begun.
    """
    original = dist.init_process_group
    if original.__module__ == module:
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **keywords: Any) -> None:
        original(**change(signature.bind(*args, **keywords).arguments))
        if then is not None:
            then()

    init_process_group.__module__ = module
    # A program may have either of the two names.
    dist.init_process_group = init_process_group
    distributed_c10d.init_process_group = init_process_group


def start_afresh() -> None:
    """Let torch's ``init_process_group`` meet in a place that no earlier start has written to.

    A group for which a program states a store or a meeting place is left as it is, and so is all that
    no launcher keeps a store for. Calling it again changes nothing.
    """
    if launcher_keeps_store(os.environ):
        adapt_meeting(_meeting_afresh, __name__)


def _meeting_afresh(given: dict[str, Any]) -> dict[str, Any]:
    # -1 stands for what nobody stated. Some programs repeat what the launcher's variables say.
    rank, size = (
        int(os.environ.get(variable, usual)) if given.get(name, -1) < 0 else given[name]
        for name, variable, usual in (("rank", "RANK", 0), ("world_size", "WORLD_SIZE", 1))
    )
    if given.get("store") is not None or given.get("init_method") not in (None, _ENVIRONMENT):
        return given
    if size == 1:
        return given
    given.pop("init_method", None)
    timeout = given.get("timeout") or default_pg_timeout
    store = meeting_store(rank, size, timeout)
    return {**given, "store": store, "rank": rank, "world_size": size}
