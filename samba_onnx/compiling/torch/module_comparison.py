"""Every value of a PEF against eager torch: the layers of the module that it was made of.

The module runs with a hook on each of its layers, and the graph that was captured of it runs in torch
operator by operator; the PEF runs section by section. What differs is judged as the check of an
export is: against float64, by a small multiple of torch's own error. Of a program that trains
outputs, new values of buffers and the gradient of each parameter are compared.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, fx, nn

from samba_onnx.comparing.both_sides import plain_engine
from samba_onnx.comparing.compared_values import ComparedValue, ValueComparison
from samba_onnx.comparing.eager.captured_graphs import CapturedGraph, captured_graph
from samba_onnx.comparing.eager.own_inputs import fitting_runs
from samba_onnx.comparing.eager.recorded_layers import recorded_layers
from samba_onnx.comparing.eager.roundings import Roundings, wide, widened
from samba_onnx.comparing.eager.running import feeds_of
from samba_onnx.comparing.eager.torch_runs import FAILURES, Results, TorchRuns
from samba_onnx.comparing.expectations import ChosenTolerances, Expectation, KnownResults
from samba_onnx.comparing.judge import judge
from samba_onnx.comparing.outcome import NotComparableError
from samba_onnx.comparing.pef_values import PefValues, refuse_several
from samba_onnx.comparing.value_statistics import ValueStatistics, value_statistics
from samba_onnx.comparing.walk import Walk
from samba_onnx.compiling.torch.session_records import read_records
from samba_onnx.compiling.torch.torch_models import TorchModel, export_model
from samba_onnx.compiling.torch.torch_programs import attached_losses, named_inputs
from samba_onnx.compiling.torch.whole_batches import refuse_mini_batches
from samba_onnx.errors import UsageError
from samba_onnx.export.capture.precision import computing_in, current_precision
from samba_onnx.export.capture.samba_calls import samba_calls
from samba_onnx.export.naming import operator_name
from samba_onnx.export.programs.inference import Exported
from samba_onnx.export.programs.training import export_training
from samba_onnx.facts.dtypes import tensor_element
from samba_onnx.facts.names import GRADIENT, LOSSES, UPDATED, gradient_name
from samba_onnx.facts.precisions import stored_precision
from samba_onnx.facts.tolerances import COARSER
from samba_onnx.pef import Pef
from samba_onnx.pef.manifest import Graph
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.program.source_location import trace_location
from samba_onnx.runtime.device import Device
from samba_onnx.tensor.arrays import to_array

JUDGED_BY: Final = "a small multiple of torch's own error, against float64"
"""What results of torch are judged by."""


@samba_calls()
def compare_module(
    model: TorchModel,
    pef: Pef,
    *,
    threads: int | None = None,
) -> ValueComparison:
    """Compare the values of a PEF with those of the module that it was made of.

    Args:
        model: The module with its example inputs, as the PEF was made of it; with optimizers where the PEF
            trains.
        pef: The PEF, open.
        threads: Threads within operators; all cores where None.

    Returns:
        The comparison. Values of layers are those that eager torch returned from them; of a program that
        trains there are outputs, buffers, and gradients by parameter.

    Raises:
        ModelError: The module cannot be exported.
        UsageError: The PEF is not of this module, is for several RDUs or trains by mini-batches that are
            mapped spatially, or the module cannot run on its own inputs.
        ExecutionError: The engine fails on the PEF.
    """
    refuse_several(pef)
    graph = pef.manifest.graphs[0]
    try:
        # In the types that the PEF computes in, or all of its roundings would be differences.
        with computing_in(stored_precision(pef.manifest.metadata)):
            if trains(pef):
                refuse_mini_batches(pef, graph)
                return _compare_training(model, pef, graph, threads)
            return _compare_forward(model, pef, graph, threads)
    except NotComparableError as obstacle:
        raise UsageError(f"the module cannot be compared with the PEF: {obstacle}") from None


def trains(pef: Pef) -> bool:
    """Return whether a PEF computes gradients.

    Args:
        pef: Any.
    """
    return any(section.type is SectionType.BCKWD for section in pef.manifest.sections)


def _compare_forward(
    model: TorchModel, pef: Pef, graph: Graph, threads: int | None
) -> ValueComparison:
    """Compare the values of a run forward."""
    exported = export_model(model)
    fitting = fitting_runs(model.module, model.args, model.keywords, exported, trains=False)
    with recorded_layers(model.module) as layers:
        # Without the results that it has, so that the module runs again while layers are recorded.
        runs = replace(fitting.runs)
        _ = runs.native
    captured = captured_graph(runs)
    assert captured is not None  # only a backward may read what nobody can tell
    torchs = _TorchValues(exported, captured, runs.unit)
    torchs.take_layers(layers, model.module)
    feeds = {name: to_array(runs.leaves[place]) for name, place in exported.inputs.items()}
    values = PefValues(plain_engine(threads), pef, graph)
    wanted = {
        number: [n for n in names if n in torchs.native] for number, names in values.names.items()
    }
    compared = _Compared(torchs)
    for stage, results in values.run(feeds, wanted):
        compared.take(stage.id, {name: results[name] for name in wanted[stage.id]})
    own = sum(len(set(values.names[n]) - torchs.native.keys()) for n in values.names)
    return compared.result(graph.name, own, fitting.condition)


@dataclass
class _Origin:
    """What a value is to the user."""

    operator: str
    path: str
    location: str


class _TorchValues:
    """The values of a captured graph in torch, by the names that they have in the program.

    As the judge takes runs: in the program's own types, in float64, and moved by roundings.
    """

    def __init__(self, exported: Exported, graph: CapturedGraph, unit: float) -> None:
        self._graph, self.unit = graph, unit
        known = {node.name: name for name, node in exported.values.items()}
        self._names = {
            node: known[node.name] for node in graph.module.graph.nodes if node.name in known
        }
        values = graph.run(lambda tensor: tensor)
        self.native: Results = self._named(values)
        self.origins = {name: _origin(node) for node, name in self._names.items()}
        self.order = {name: place for place, name in enumerate(self._names.values())}

    def _named(self, values: Mapping[fx.Node, Any]) -> Results:
        return {
            name: np.array(to_array(values[node]))
            for node, name in self._names.items()
            if isinstance(values.get(node), Tensor) and node.op == "call_function"
        }

    @functools.cached_property
    def exact(self) -> Results | None:
        """Values in float64; None where an operator insists on another type."""
        try:
            with widened():
                return self._named(self._graph.run(wide))
        except FAILURES:
            return None

    def moved(self, seed: int, amplitude: float) -> Results | None:
        """Return values after operands moved by roundings, in float64."""
        roundings = Roundings(amplitude * self.unit, seed)
        try:
            with widened():
                return self._named(self._graph.run(lambda tensor: roundings.moved(wide(tensor))))
        except FAILURES:
            return None

    def take_layers(self, layers: Mapping[str, list[Any]], module: nn.Module) -> None:
        """Put what eager torch returned from layers in the place of the same values of the graph."""
        kinds = {path: type(layer).__name__ for path, layer in module.named_modules()}
        for path, results in layers.items():
            for array in results:
                name = self._value_of(path, array)
                if name is not None:
                    self.native[name] = array
                    origin = self.origins[name]
                    self.origins[name] = replace(
                        origin, path=f"{path} ({kinds.get(path, 'layer')})"
                    )

    def _value_of(self, path: str, array: Any) -> str | None:
        """Return the last value of a layer that is near what the layer returned."""
        # From the last: a layer's last operator is what it returns, and
        # others may have equal values.
        for node, name in reversed(self._names.items()):
            value = self.native.get(name)
            if value is None or not _within(node, path) or value.shape != array.shape:
                continue
            once = Expectation.of_torch(KnownResults({name: array}, self.unit))
            if judge({name: value}, once)[0].passed:
                return name
        return None


def _within(node: fx.Node, path: str) -> bool:
    stack = node.meta.get("nn_module_stack") or {}
    return any(inner == path or inner.split("@")[0] == path for inner, _ in stack.values())


def _origin(node: fx.Node) -> _Origin:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return _Origin(operator_name(node), path, trace_location(node.meta.get("stack_trace") or ""))


class _Compared:
    """Values of a PEF that were compared with torch's."""

    def __init__(self, torchs: _TorchValues) -> None:
        self._torchs = torchs
        # Of a program in another precision than its module people want to see what that costs.
        self._float32 = None if current_precision().is_own else torchs.exact
        self._statistics: dict[str, tuple[int, ValueStatistics, str]] = {}
        self._doubtful: Results = {}

    def take(self, stage: int, values: Results) -> None:
        """Compare values of one section; keep those that are not near at once."""
        for name, actual in values.items():
            expected = self._torchs.native[name]
            statistics = value_statistics(name, actual, expected, ChosenTolerances(), 1)
            if not statistics.comparison.passed:
                self._doubtful[name] = actual
            if self._float32 is not None and name in self._float32:
                statistics = _distance(name, actual, self._float32[name], statistics)
            self._statistics[name] = (stage, statistics, str(expected.dtype))

    def result(self, graph: str, own: int, condition: str) -> ValueComparison:
        """Judge what was not near, and put the answer together.

        Raises:
            UsageError: There is nothing to compare.
        """
        torchs = self._torchs
        if not self._statistics:
            raise UsageError(
                "the PEF has no value of the module: compare takes what it was made of"
            )
        # All at once, since each run of torch in float64 or with roundings tells of all values.
        wrong, walk = _wrong(self._doubtful, torchs), Walk[str]()
        values = []
        for name in sorted(self._statistics, key=torchs.order.__getitem__):
            stage, statistics, dtype = self._statistics[name]
            origin = torchs.origins[name]
            judged = _judged(statistics, name in self._doubtful, name in wrong)
            values.append(
                ComparedValue(
                    name=name,
                    position=torchs.order[name],
                    node=origin.path,
                    operator=origin.operator,
                    location=origin.location,
                    stage=stage,
                    dtype=dtype,
                    statistics=judged,
                    operands_agree=walk.take(name, [judged.comparison]),
                )
            )
        operators = {name: torchs.origins[name].operator for name in torchs.native}
        return ValueComparison.of(graph, values, operators, own=own, inputs=_inputs(condition))


def _inputs(condition: str) -> str:
    return "the example inputs" + (f" ({condition})" if condition else "")


def _distance(name: str, actual: Any, exact: Any, statistics: ValueStatistics) -> ValueStatistics:
    """Return how far a value is from that without roundings, with the verdict on it."""
    # bfloat16 is of kind V to numpy.
    if actual.dtype.kind not in "fV" or exact.dtype.kind != "f":
        return statistics
    pair = actual.astype(np.float32), exact.astype(np.float32)
    shown = value_statistics(name, *pair, ChosenTolerances(), 1, COARSER)
    verdict = statistics.comparison
    comparison = replace(shown.comparison, passed=verdict.passed, tolerance=verdict.tolerance)
    return replace(shown, comparison=comparison)


def _wrong(doubtful: Results, torchs: Any) -> frozenset[str]:
    """Return which values are further from float64 than torch accounts for."""
    if not doubtful:
        return frozenset()
    verdicts = judge(doubtful, Expectation.of_torch(torchs))
    return frozenset(verdict.name for verdict in verdicts if not verdict.passed)


def _judged(statistics: ValueStatistics, doubtful: bool, wrong: bool) -> ValueStatistics:
    """Put the judge's verdict in the place of that of the plain tolerance."""
    if not doubtful:
        return statistics
    changes: dict[str, Any] = {"passed": not wrong, "tolerance": JUDGED_BY}
    if not wrong:
        changes |= {"mismatched": 0}
    return replace(statistics, comparison=replace(statistics.comparison, **changes))


def _compare_training(
    model: TorchModel, pef: Pef, graph: Graph, threads: int | None
) -> ValueComparison:
    """Compare one forward and backward on the device with torch's autograd."""
    inputs = named_inputs(model.module, dict(model.keywords) or model.args)
    record = read_records(pef).get(graph.name)
    losses = attached_losses(model.module, None if record is None else record.loss_indices)
    exported = export_training(model.module, inputs, loss_indices=losses, name=graph.name)
    fitting = fitting_runs(model.module, model.args, model.keywords, exported, trains=True)
    runs = fitting.runs
    actual = _device_results(pef, graph, exported, runs, threads)
    expected = {name: array for name, array in runs.native.items() if name in actual}
    if not expected:
        raise UsageError("the PEF has no value of the module: compare takes what it was made of")
    statistics = {
        name: value_statistics(name, actual[name], array, ChosenTolerances(), 1)
        for name, array in expected.items()
    }
    doubtful = {n: actual[n] for n, one in statistics.items() if not one.comparison.passed}
    wrong = _wrong(doubtful, runs)
    producers = {
        name: stage.id for stage in pef.manifest.stages().values() for name in stage.outputs
    }
    values = tuple(
        ComparedValue(
            name=name,
            position=place,
            node=exported.members.get(_base(name), ""),
            operator=_role(name),
            location="",
            stage=producers.get(name, 0),
            dtype=str(expected[name].dtype),
            statistics=_judged(one, name in doubtful, name in wrong),
            operands_agree=True,
        )
        for place, (name, one) in enumerate(statistics.items())
    )
    roles = {name: _role(name) for name in runs.native}
    inputs = _inputs(fitting.condition)
    return ValueComparison.of(graph.name, values, roles, own=0, inputs=inputs)


def _base(name: str) -> str:
    return name.removesuffix(GRADIENT).removesuffix(UPDATED)


def _role(name: str) -> str:
    """Return what a result of a training step is."""
    if name.endswith(GRADIENT):
        return "gradient"
    return "new value" if name.endswith(UPDATED) else "output"


def _device_results(
    pef: Pef, graph: Graph, exported: Exported, runs: TorchRuns, threads: int | None
) -> Results:
    """Run forward and backward on the device, with dropouts that drop nothing."""
    feeds = feeds_of(runs.module, runs.leaves, exported)
    losses = {gradient_name(n) for n in json.loads(exported.program.metadata.get(LOSSES, "[]"))}
    argins = {argin.name: 0 for argin in exported.program.argins}
    symbols = {symbol.name: symbol for symbol in pef.manifest.symbols}
    residents = pef.manifest.residents()
    with Device(pef, threads=threads) as device, torch.no_grad():
        device.load({name: feeds[name] for name in exported.members if name in residents})
        for symbol in symbols.values():
            if symbol.kind is SymbolKind.GRADIENT and symbol.name in residents:
                shape = [size for size in symbol.shape or () if isinstance(size, int)]
                element = tensor_element(symbol.type)
                dtype = np.dtype(np.float32) if element is None else element.numpy
                # Backward begins with 1 at each loss, and adds to gradients that begin with 0.
                device.write(symbol.name, np.full(shape, symbol.name in losses, dtype))
        inputs = {name: feeds[name] for name in graph.inputs if name in exported.inputs}
        # Without the optimizers' sections: torch takes no step here to hold theirs against.
        types = {SectionType.FWD.value, SectionType.BCKWD.value}
        results = device.run(inputs, section_types=types, argins=argins)
        kept = [name for name in runs.native if name in symbols and name not in results]
        return {**results, **{name: device.read(name) for name in kept}}
