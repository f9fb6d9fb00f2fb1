"""Analyses of many models on a Ray cluster, for more of them than one machine holds.

Its machines read models and write reports in the same folders, as a network file system shows them to all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from samba_onnx.errors import MissingLibraryError, SambaError
from samba_onnx.safety.files import printable
from samba_onnx.safety.ray_cluster import connect
from samba_onnx.tools.survey.analysis_children import Analysis, ChildLimits, run_analyses


def run_on_cluster(
    analyses: Sequence[Analysis],
    options: Sequence[str],
    limits: ChildLimits,
    progress: Callable[[int], None],
) -> None:
    """Analyze models on all machines of a cluster; each leaves a report, or the record of its failure.

    Args:
        analyses: What to analyze, in this order.
        options: Options that every ``samba-port analyze`` gets.
        limits: How many run at a time in the whole cluster, and what each may take; where no memory is stated, the
            even share of its machine.
        progress: Called with the number of those that ended, after each.

    Raises:
        MissingLibraryError: The extra ``ray`` is not installed.
        OutputError: The record of a failure cannot be written.
    """
    ray = _ray()
    if not analyses:
        return
    connect(ray)
    analyze = ray.remote(num_cpus=1)(_analyze)
    folder, waiting = os.getcwd(), deque(analyses)
    running: dict[Any, Analysis] = {}
    # Beyond what the cluster has room for now: it may grow as soon as it sees that more is asked for.
    most = limits.jobs or len(analyses)
    try:
        while waiting or running:
            while waiting and len(running) < most:
                one = waiting.popleft()
                running[analyze.remote(one, tuple(options), limits, folder)] = one
            (ended,), _ = ray.wait([*running], num_returns=1)
            _settle(ray, ended, running.pop(ended))
            progress(len(analyses) - len(waiting) - len(running))
    finally:
        for each in running:
            ray.cancel(each)


def _ray() -> Any:
    """Return the module."""
    try:
        import ray
    except ImportError:
        raise MissingLibraryError(
            "--engine ray needs ray: install it with pip install 'samba-onnx[ray]'"
        ) from None
    return ray


def _settle(ray: Any, ended: Any, analysis: Analysis) -> None:
    """Record the failure of what left no record by itself."""
    try:
        error = ray.get(ended)
    except ray.exceptions.RayError as lost:
        error = f"the cluster lost it: {printable(lost)}"
    if error:
        analysis.fail(error)


def _analyze(
    analysis: Analysis, options: Sequence[str], limits: ChildLimits, folder: str
) -> str | None:
    """Analyze a model in a process of the cluster, from the folder that the survey was started in.

    Returns:
        Why it could not be tried; None where it was, and left a report or a record.
    """
    # One at a time here: Ray starts as many of these as the machine has cores, each with its share of memory.
    here = dataclasses.replace(limits, jobs=0).of_this_machine()
    try:
        with contextlib.chdir(folder):
            run_analyses([analysis], options, dataclasses.replace(here, jobs=1), _ignore)
    except (OSError, SambaError) as error:
        return f"a machine of the cluster could not try it: {printable(error)}"
    return None


def _ignore(done: int) -> None:
    """Tell nobody: the survey hears of whole analyses."""
