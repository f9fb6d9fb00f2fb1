"""The values that a PEF computes, section by section, on host values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from samba_onnx.errors import ExecutionError, UsageError
from samba_onnx.pef import Pef
from samba_onnx.pef.layout import WEIGHTS_MEMBER
from samba_onnx.pef.manifest import Fallback, Graph, Section
from samba_onnx.runtime.engine.assembly import place_weights
from samba_onnx.runtime.engine.protocol import Computation, Engine, HostComputation


def refuse_several(pef: Pef) -> None:
    """Refuse a PEF for several RDUs, where values are compared one by one: each RDU has parts of them.

    Args:
        pef: Any.

    Raises:
        UsageError: It was compiled for several.
    """
    if pef.manifest.parallel is not None:
        raise UsageError(
            f"{pef.path} is for {pef.manifest.parallel.rdus} RDUs, each of which has parts of its inner values: "
            "verify compares its outputs; for inner values convert without --n-chips"
        )


class PefValues:
    """One graph of a PEF, of which any value can be looked at.

    No more is in memory than the values of one section, and those that later ones read.
    """

    def __init__(self, engine: Engine, pef: Pef, graph: Graph) -> None:
        """Look at the sections.

        Args:
            engine: What executes them.
            pef: The PEF, open.
            graph: One of its graphs.
        """
        self._engine = engine
        self._pef = pef
        stages = pef.manifest.stages()
        self.stages: list[Section | Fallback] = [stages[call.stage] for call in graph.calls]
        """Sections and fallbacks in the order of the schedule."""
        self.names = {stage.id: _written(pef.stage_model(stage.id)) for stage in self.stages}
        """Names of the values that each of them computes, those inside included."""

    def run(
        self, feeds: Mapping[str, Any], wanted: Mapping[int, Sequence[str]]
    ) -> Iterator[tuple[Section | Fallback, dict[str, Any]]]:
        """Run the graph once.

        Args:
            feeds: Inputs by symbol.
            wanted: Names of the values to return, by the id of the section or fallback.

        Yields:
            Each section or fallback after it ran, with the values that are wanted of it, and with those that
            it leaves for others.

        Raises:
            UsageError: A weight has no content.
            ExecutionError: The engine cannot execute one.
        """
        values = dict(feeds)
        for number, stage in enumerate(self.stages):
            # What later sections read, and behind it what is compared; a model may
            # not name an output twice.
            outputs = list(dict.fromkeys([*stage.outputs, *wanted[stage.id]]))
            model = _exposing(self._pef.stage_model(stage.id), outputs)
            # Weights are read where they are needed first, so that those of
            # other sections take no memory.
            for name in stage.inputs:
                if name not in values:
                    values[name] = self._stored(name)
            results = run_once(self._engine, self._open(model, stage), values)
            later = {name for following in self.stages[number + 1 :] for name in following.inputs}
            values.update({name: results[name] for name in stage.outputs})
            values = {name: value for name, value in values.items() if name in later}
            yield stage, results

    def _open(self, model: onnx.ModelProto, stage: Section | Fallback) -> HostComputation:
        path = Path(os.path.realpath(self._pef.path))
        place_weights(model, path.name, self._pef.member_offset(WEIGHTS_MEMBER))
        on_rdu = isinstance(stage, Section)
        title = f"{'section' if on_rdu else 'fallback'} {stage.id} ({stage.name})"
        return self._engine.prepare(
            # A fallback runs on the CPU, which rounds as the model says and not as the device does.
            Computation(model, title, str(path.parent), rounds_as_device=on_rdu)
        )

    def _stored(self, name: str) -> Any:
        """Return a value that the PEF has without computing it."""
        if self._pef.symbol(name).stored is None:
            raise UsageError(
                f"value {name!r} of {self._pef.path} has no content: it is an input or a weight that was "
                "not given"
            )
        return self._pef.weight(name)


def run_once(
    engine: Engine, computation: HostComputation, feeds: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a computation.

    Args:
        engine: Prepared it.
        computation: To run.
        feeds: Values by name, and maybe others.

    Returns:
        Its outputs by name.

    Raises:
        ExecutionError: An operator failed.
    """
    try:
        results = computation.run({n: feeds[n] for n in computation.inputs if n in feeds})
    except engine.failures as error:
        reason = engine.reason(error)
        raise ExecutionError(f"the values cannot be computed: {reason}", reason=reason) from None
    return dict(zip(computation.outputs, results, strict=True))


def _written(model: onnx.ModelProto) -> list[str]:
    return list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))


def _exposing(model: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """Return a stage's model with other outputs; it is changed in place."""
    declared = {
        value.name: value
        for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    values = [declared.get(name) or onnx.ValueInfoProto(name=name) for name in outputs]
    inner = [value for value in model.graph.value_info if value.name not in set(outputs)]
    del model.graph.output[:]
    model.graph.output.extend(values)
    del model.graph.value_info[:]
    model.graph.value_info.extend(inner)
    return model
