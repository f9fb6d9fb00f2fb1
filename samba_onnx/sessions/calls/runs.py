"""Runs of what was traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from samba_onnx.runtime.selection import SectionIds
from samba_onnx.sessions.calls.parts import SessionParts
from samba_onnx.sessions.hyperparameters import NO_NUMBERS
from samba_onnx.sessions.run_arguments import ALL_SECTIONS, RunArguments
from samba_onnx.sessions.turns import in_turn
from samba_onnx.tensor import SambaTensor

__all__ = ["RunCalls"]


class RunCalls(SessionParts):
    """Calls that execute sections."""

    def run(
        self,
        input_tensors: Any = None,
        output_tensors: Any = (),
        hyperparam_dict: Any = NO_NUMBERS,
        data_parallel: Any = False,
        reduce_on_rdu: bool = False,
        section_ids: SectionIds = ALL_SECTIONS,
        section_types: Sequence[str] = (),
        run_until_call_id: int | None = None,
        run_from_call_id: int | None = None,
        data_parallel_mode: str = "normal",
        train: bool = True,
        *,
        graph_name: str | None = None,
        grad_of_outputs: Sequence[torch.Tensor] | None = None,
        detect_anomaly: bool = False,
    ) -> tuple[SambaTensor, ...]:
        """Copy inputs to the device, execute sections, and copy outputs back.

        ``run(model, inputs, outputs)`` works, too: the model is ignored.

        Args:
            input_tensors: Tensors of the compiled shapes and dtypes, told apart by ``sn_name``: a
                list, a tuple, or a dict, which names those without a name. None, for an input or
                for all, stands for the value that the device has.
            output_tensors: Traced tensors or names whose values are wanted: outputs of the graph,
                in any number and order, or other tensors on the device. One tensor may be given
                as it is.
            hyperparam_dict: Numbers by name, as ``lr`` or ``p`` (the rate of all dropouts), or by
                the name of an argin. They persist. Names that the program does not have are
                ignored; of those that are nobody's, a warning is logged once.
            data_parallel: Take part in a run of all processes of the group of
                ``torch.distributed``: each is a replica with a batch of its own, and GRADNORM and OPT
                see the means of their gradients. Masks of dropouts differ. See
                ``docs/data_parallel.md``.
            reduce_on_rdu: Let devices combine gradients among themselves; otherwise each gradient is
                copied to the host, and its mean back.
            section_ids: Execute these sections only, in this order.
            section_types: Execute sections of these types only, in this order; any case. REDUCE
                combines gradients of replicas, and is nothing to do for one device.
            run_until_call_id: Stop before this call of the schedule.
            run_from_call_id: Begin with this call of the schedule.
            data_parallel_mode: When replicas combine gradients: ``normal``, after the backward, or
                as ``trace_graph`` was told; ``inorder``, while the rest of the backward runs;
                ``optimal``, where besides no optimizer waits for gradients that it does not read.
                Results are the same.
            train: Whether dropouts drop values. Without, their rates are 0 in this run.
            graph_name: The graph to run; may be left out if there is one only.
            grad_of_outputs: Gradients of the graph's outputs, in their order, for the backward
                sections of this and later runs; None leaves one as it is.
            detect_anomaly: Look for NaN and infinite numbers in what each section writes, which is
                slower, and stop at the first: before sections that would use it.

        Returns:
            The values asked for, in that order, in memory of their own.

        Raises:
            NotTracedError: No graph was traced.
            InputError: An input has no name, another shape or dtype, does not exist, or was never
                given. The device is unchanged.
            UsageError: An output or graph does not exist, or arguments contradict each other; or
                there is no group of processes, or gradients of ``data_parallel`` runs are left
                unreduced. The device is unchanged.
            ScheduleError: A section, type or call does not exist, or would read what nothing has
                computed. The device is unchanged.
            AnomalyError: ``detect_anomaly`` found something; names the first section and value.
            ExecutionError: An operator failed.
        """
        # Before a record is made of the arguments, which takes as long as a small model: most runs were made before.
        if (
            not data_parallel
            and data_parallel_mode == "normal"
            and section_ids is ALL_SECTIONS
            and not detect_anomaly
            and grad_of_outputs is None
            and run_until_call_id is None
            and run_from_call_id is None
        ):
            results = self._runner.repeat(
                input_tensors, output_tensors, hyperparam_dict, section_types, train, graph_name
            )
            if results is not None:
                return results
        arguments = RunArguments(
            inputs=input_tensors,
            outputs=output_tensors,
            numbers=hyperparam_dict,
            data_parallel=data_parallel,
            reduce_on_rdu=reduce_on_rdu,
            data_parallel_mode=data_parallel_mode,
            section_ids=section_ids,
            section_types=section_types,
            from_call=run_from_call_id,
            until_call=run_until_call_id,
            train=train,
            graph_name=graph_name,
            output_grads=grad_of_outputs,
            detect_anomaly=detect_anomaly,
        )
        return self._runner.run(arguments)

    @in_turn
    def reset_random_generator(self) -> None:
        """Let dropouts draw the masks again that they drew after ``trace_graph``."""
        self._program.hyperparameters.reset_random()
