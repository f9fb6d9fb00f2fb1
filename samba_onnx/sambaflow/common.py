"""``sambaflow.samba.utils.common``: what programs of early releases left to SambaFlow."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from samba_onnx.compiling.sambaflow_arguments import Command
from samba_onnx.sessions import SESSION
from samba_onnx.utils import measure_performance, measure_sections, trace_graph

__all__ = ["common_app_driver", "compile"]


def compile(
    args: Namespace,
    model: nn.Module,
    inputs: Any,
    optim: Optimizer | Sequence[Optimizer] | None = None,
    name: str = "",
    **ignored: Any,
) -> str:
    """Compile a model as a command line says; programs of the first releases call it.

    Args:
        args: What ``parse_app_args`` returned; it says where the PEF goes.
        model: The module.
        inputs: Named tensors, as ``samba.session.compile`` takes them.
        optim: Its optimizers; None for inference.
        name: What reports call the model.
        **ignored: ``app_dir`` and the like, without effect.

    Returns:
        Path of the PEF.

    Raises:
        SambaError: The model cannot be compiled; see ``samba.session.compile``.
    """
    del ignored
    return SESSION.compile(model, inputs, optim, name=name, config_dict=args)


def common_app_driver(
    args: Namespace,
    model: nn.Module,
    inputs: Any,
    optim: Optimizer | Sequence[Optimizer] | None = None,
    name: str = "",
    init_output_grads: bool | None = None,
    app_dir: str | None = None,
    squeeze_bs_dim: bool = False,
    get_output_grads: bool | None = None,
    **ignored: Any,
) -> None:
    """Do what a program was started for, where that needs nothing of the program's own.

    ``compile`` writes a PEF, ``measure-performance`` and ``measure-sections`` measure one; ``run``
    and ``test`` do nothing. SambaFlow deprecated it: call ``samba.session.compile``,
    ``samba.utils.trace_graph`` and ``samba.utils.measure_performance`` (model conversion overview).

    Args:
        args: What ``parse_app_args`` returned.
        model: The converted module.
        inputs: Named tensors, as ``samba.session.compile`` takes them.
        optim: Its optimizers; None for inference.
        name: What reports call the model.
        init_output_grads: Accepted, without effect: measuring begins with ones in any case, as
            nobody is there to set gradients.
        app_dir: Accepted, without effect.
        squeeze_bs_dim: Accepted, without effect.
        get_output_grads: Whether gradients are to be fetched for a loss on the host; accepted,
            without effect, as what is measured has none.
        **ignored: Accepted, without effect.

    Raises:
        SambaError: The model cannot be compiled, or the PEF cannot be run.
    """
    del init_output_grads, get_output_grads, app_dir, squeeze_bs_dim, ignored
    warnings.warn(
        "common_app_driver is deprecated; call session.compile, trace_graph, measure_performance",
        DeprecationWarning,
        stacklevel=2,
    )
    if args.command == Command.COMPILE:
        compile(args, model, inputs, optim, name=name)
    elif args.command in (Command.MEASURE_PERFORMANCE, Command.MEASURE_SECTIONS):
        trace_graph(model, inputs, optim, pef=args.pef, mapping=args.mapping)
        _measure(args, model, inputs)


def _measure(args: Namespace, model: nn.Module, inputs: Any) -> None:
    """Measure the model that was traced, as the command line says."""
    options: dict[str, Any] = {
        "batch_size": args.batch_size,
        "n_iterations": args.num_iterations,
        # Of a run that only measures, the report is what was measured.
        "json": args.json or args.bench_report_json,
        "min_duration": args.min_duration,
        "data_parallel": args.data_parallel,
        "reduce_on_rdu": args.reduce_on_rdu,
    }
    if args.command == Command.MEASURE_SECTIONS:
        measure_sections(model, inputs, num_sections=args.num_sections, **options)
        return
    measure_performance(
        model,
        inputs,
        n_chips=args.n_chips,
        inference=args.inference,
        run_graph_only=args.run_graph_only,
        compiled_stats_json=args.compiled_stats_json,
        use_sambaloader=args.use_sambaloader,
        json_counters=args.json_counters,
        **options,
    )
