"""Measuring how fast a traced model runs."""

from __future__ import annotations

import functools
import json as json_format
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from samba_onnx.errors import UsageError
from samba_onnx.program.kinds import SectionType
from samba_onnx.safety.files import atomic_output
from samba_onnx.sessions import SESSION
from samba_onnx.sessions.arguments import tell_idle
from samba_onnx.utils.processes import agreed, is_main_process
from samba_onnx.utils.tracing import traced_outputs

ITERATIONS = 100
"""Number of runs that are measured by default."""


class Performance(NamedTuple):
    """Throughput and latency of a model."""

    throughput: float
    """Samples per second."""
    latency: float
    """Seconds per run."""


def measure_performance(
    model: nn.Module,
    inputs: Any,
    batch_size: int = 1,
    n_chips: int = 1,
    inference: bool = False,
    run_graph_only: bool = False,
    n_iterations: int = ITERATIONS,
    json: str | None = None,
    compiled_stats_json: str | None = None,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
    use_sambaloader: bool = False,
    min_duration: float = 0.0,
    set_output_grads: bool = True,
    json_counters: str | None = None,
    world_size: int = 1,
) -> Performance:
    """Run a traced model many times, and tell how long it takes.

    Args:
        model: The module that ``trace_graph`` was called with.
        inputs: Named tensors, as ``session.run`` takes them.
        batch_size: Number of samples that one run takes, of one replica.
        n_chips: Without effect, which is said once.
        inference: Whether to run forward sections only.
        run_graph_only: Whether to leave inputs and outputs on the device; they are copied once,
            before the runs that are measured.
        n_iterations: Number of runs, at least 1.
        json: Path of a file to write the result to, which only the first of several replicas does;
            None writes none.
        compiled_stats_json: Without effect, which is said once.
        data_parallel: Whether several processes share the work, as for ``session.run``.
        reduce_on_rdu: Whether gradients are added up on the RDU, as for ``session.run``.
        use_sambaloader: Without effect, which is said once.
        min_duration: Seconds that the runs take together at least; more of them are made if need
            be.
        set_output_grads: Accepted, without effect.
        json_counters: Without effect, which is said once.
        world_size: Accepted, without effect: ``torch.distributed`` knows how many processes there are.

    Returns:
        Samples per second, of this replica, and seconds per run.

    Raises:
        UsageError: The model was not traced, or a number is not positive.
    """
    del set_output_grads, world_size
    _tell(
        # One chip is what the model runs on anyway: there is nothing to tell of it.
        n_chips=n_chips > 1,
        compiled_stats_json=compiled_stats_json,
        use_sambaloader=use_sambaloader,
        json_counters=json_counters,
    )
    outputs: Sequence[Any] = [] if run_graph_only else traced_outputs(model)
    # Without inputs, a run takes the values that the device has.
    inputs_of_a_run = None if run_graph_only else inputs
    forward = SectionType.FWD.value
    types = (forward,) if inference and forward in SESSION.get_section_types() else ()

    def once() -> None:
        SESSION.run(
            inputs_of_a_run,
            outputs,
            data_parallel=data_parallel,
            reduce_on_rdu=reduce_on_rdu,
            section_types=types,
        )

    if run_graph_only:
        SESSION.run(inputs, [])
    count, (seconds,) = _timed([once], n_iterations, min_duration, together=data_parallel)
    result = Performance(batch_size * count / seconds, seconds / count)
    sys.stdout.write(
        f"e2e_throughput: {result.throughput} samples/s, measured over {count} iterations. "
        f"Average latency: {result.latency} s.\ne2e_latency: {seconds} s\n"
    )
    if json:
        figures = {"e2e_throughput": result.throughput, "e2e_latency": seconds}
        _write(json, {**figures, "average_latency": result.latency, "iterations": count})
    return result


def measure_sections(
    model: nn.Module,
    inputs: Any,
    num_sections: int | None = None,
    n_iterations: int = ITERATIONS,
    batch_size: int = 1,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
    json: str | None = None,
    min_duration: float = 0.0,
) -> dict[int, float]:
    """Run every section of a traced model on its own many times, in the order of the schedule.

    Sections of a graph that is mapped spatially run together, and cannot be measured one by one.

    Args:
        model: The module that ``trace_graph`` was called with.
        inputs: Named tensors, as ``session.run`` takes them.
        num_sections: Number of sections to measure, from the first; None measures all.
        n_iterations: Number of runs of each section, at least 1.
        batch_size: Number of samples that one run takes; it is only written to the file.
        data_parallel: Whether several processes share the work, as for ``session.run``.
        reduce_on_rdu: Whether gradients are added up on the RDU, as for ``session.run``.
        json: Path of a file to write the result to; None writes none.
        min_duration: Seconds that the runs of a section take together at least; more of them are
            made if need be.

    Returns:
        Seconds per run by section id.

    Raises:
        UsageError: The model was not traced, or a number is not positive.
        ScheduleError: The model is mapped spatially.
    """
    # For its error, which says what to do with a model that was not traced.
    traced_outputs(model)
    sections = SESSION.get_section_ids()[:num_sections]
    # Every section leaves its values on the device for those after it.
    SESSION.run(inputs, [], data_parallel=data_parallel, reduce_on_rdu=reduce_on_rdu)
    runs = [functools.partial(SESSION.run, None, [], section_ids=[number]) for number in sections]
    # Once before the clock runs. Whole steps: backward sections alone would overwrite gradients.
    for run in runs:
        run()
    count, totals = _timed(runs, n_iterations, min_duration)
    result = {section: total / count for section, total in zip(sections, totals, strict=True)}
    for section, seconds in result.items():
        sys.stdout.write(f"section {section}: {seconds} s over {count} iterations\n")
    if json:
        _write(json, {"batch_size": batch_size, "sections": result})
    return result


def _tell(**given: object) -> None:
    """Say of arguments that were given that they have no effect."""
    for name, value in given.items():
        if value:
            tell_idle(name)


def _timed(
    runs: Sequence[Callable[[], Any]],
    iterations: int,
    min_duration: float,
    *,
    together: bool = False,
) -> tuple[int, list[float]]:
    """Return how often each of several runs was made, in turns, and its seconds in all.

    Replicas that run together make as many runs as the first one wants: they wait for each other.
    """

    def is_short() -> bool:
        short = min(totals, default=min_duration) < min_duration
        return agreed(short) if together and min_duration else short

    if iterations < 1 or min_duration < 0:
        raise UsageError(
            f"n_iterations is {iterations} and min_duration {min_duration}; give at least 1 and 0"
        )
    count, totals = 0, [0.0] * len(runs)
    with torch.no_grad():
        while count < iterations or is_short():
            # In turns: each section finds what those before it left, as in a whole step.
            for number, run in enumerate(runs):
                begin = time.perf_counter()
                run()
                totals[number] += time.perf_counter() - begin
            count += 1
    return count, totals


def _write(path: str, content: Mapping[str, Any]) -> None:
    if not is_main_process():
        return
    with atomic_output(Path(path)) as file:
        file.write(json_format.dumps(content, indent=1).encode())
