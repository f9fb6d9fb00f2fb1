"""Outputs of a PEF against those of the torch module that it was made of, on its example inputs."""

from __future__ import annotations

from samba_onnx.comparing.eager.own_inputs import fitting_runs
from samba_onnx.comparing.expectations import ChosenTolerances
from samba_onnx.comparing.outcome import NotComparableError
from samba_onnx.comparing.trials import Verification
from samba_onnx.comparing.verification import verify_results
from samba_onnx.compiling.torch.torch_models import TorchModel, export_model
from samba_onnx.compiling.torch.whole_batches import in_each_batch, run_name
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.precision import computing_in
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.facts.defaults import DEFAULT_ENGINE
from samba_onnx.facts.precisions import stored_precision
from samba_onnx.pef import Pef
from samba_onnx.tensor.arrays import to_array


@samba_calls()
def verify_module(
    model: TorchModel,
    pef: Pef,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    threads: int | None = None,
    engine: str = DEFAULT_ENGINE,
) -> Verification:
    """Compare a PEF on the emulator with eager torch, which runs the module as it is now.

    Args:
        model: The module with its example inputs, in evaluation mode.
        pef: The compiled model, open, with its weights.
        rtol: Relative tolerance; that of the type where None.
        atol: Absolute tolerance per unit of the output's largest magnitude; likewise where None.
        threads: Threads of the emulator; all cores where None.
        engine: Name of what executes the PEF.

    Returns:
        One comparison per output. Example inputs that carry no meaning, as indices beyond a table, are
        replaced by values that fit; the name of the run says so.

    Raises:
        ModelError: The module cannot be exported.
        UsageError: The PEF is not of this module, or the module cannot run on its own inputs.
        ExecutionError: The engine fails on the PEF.
    """
    with computing_in(stored_precision(pef.manifest.metadata)):
        exported = export_model(model)
        try:
            fitting = fitting_runs(model.module, model.args, model.keywords, exported, trains=False)
        except NotComparableError as obstacle:
            raise UsageError(f"the module cannot be compared with the PEF: {obstacle}") from None
        leaves, results = fitting.runs.leaves, fitting.runs.native
    inputs = {name: to_array(leaves[place]) for name, place in exported.inputs.items()}
    outputs = {name: results[name] for name in exported.outputs if name is not None}
    graph = pef.manifest.graphs[0]
    if set(outputs) != set(graph.outputs) or set(inputs) != set(graph.inputs):
        raise UsageError(
            f"{pef.path} has inputs {list(graph.inputs)} and outputs {list(graph.outputs)}, the module "
            f"has {list(inputs)} and {list(outputs)}: verify takes the model that the PEF was "
            "converted from"
        )
    inputs, outputs = (in_each_batch(pef, graph, arrays) for arrays in (inputs, outputs))
    run = run_name(graph, fitting.condition)
    limits = ChosenTolerances(rtol, atol)
    return verify_results(
        pef, run, inputs, outputs, against="torch", limits=limits, threads=threads, engine=engine
    )
