"""The run of a step in the program's loop, and what it makes superfluous."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import libcst as cst

from samba_onnx.tools.adapt.graph_code import plain_name, statements_text
from samba_onnx.tools.adapt.name_units import argument, reads, root_unit, unit_of, walk
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.roles import Role, StepPart
from samba_onnx.tools.adapt.slice_values import Input, in_order
from samba_onnx.tools.adapt.slicing import Slice
from samba_onnx.tools.adapt.trained_step import TrainedStep


@dataclass(frozen=True)
class RunEdits:
    """Plans the run that stands for forward pass, loss, gradients and step."""

    port: ProgramPort
    training: TrainedStep
    cut: Slice
    naming: str
    """The function that names the tensors of a batch."""
    accumulates: bool
    """Whether some backward passes are followed by no step."""
    filling: str = ""
    """The function that fills a smaller last batch; empty where there is none."""

    def plan(self) -> None:
        """Plan all edits."""
        # One run in the place of the first statement; the others are gone.
        self._run()
        for node, name in self.cut.renamed:
            self.port.edits.rewrite(
                node, partial(_renamed, name), "outputs", "it is an output of the run"
            )
        for part in self.training.parts:
            self._part(part)

    # The run in the loop.

    def _run(self) -> None:
        # One run in the place of the first statement; the others are gone.
        place = self.cut.place or self.training.backward.statement
        code = self._run_text()
        if self.cut.condition is not None:
            code = self._conditional_text(code)
        what = "the RDU computes forward pass, loss, gradients and step in one run"
        if self.training.infers:
            what = "the RDU computes the model in one run"
        if place not in self.cut.moved:
            self.port.edits.replace(place, [code], self._pattern, what)
        for one in self.cut.moved:
            if one is place:
                self.port.edits.replace(one, [code], self._pattern, what)
            else:
                self.port.edits.remove(
                    one, "loss-in-module", "it is computed in the module with the loss"
                )

    @property
    def _pattern(self) -> str:
        return "inference" if self.training.infers else "run"

    def _run_text(self) -> str:
        # Converted to torch at once: what follows is the program's own, and expects tensors of torch.
        cut = self.cut
        inputs = ", ".join(map(self._given, in_order(cut.inputs)))
        rates = self._rates()
        sections = '    section_types=["FWD", "BCKWD"],\n' if self.accumulates else ""
        shown = [cut.loss] if cut.loss_is_read else []
        computed = [
            f"*{output.name}" if output.is_sequence else output.name for output in cut.outputs
        ]
        targets = [*(shown or ["_"]), *computed]
        if self.training.infers:
            sections = '    section_types=["FWD"],\n'
            targets = computed
        run = (
            f"samba.session.run(\n"
            f"    input_tensors={self.naming}({inputs}),\n"
            f"    output_tensors={self._model_in_loop()}.output_tensors,\n"
            f"{rates}{sections}{self._parallel()})"
        )
        if not shown and not cut.outputs:
            return run
        wanted = [*shown, *computed]
        cutting = f"[: {self._rows()}]" if self.filling else ""
        states = [one.removeprefix("*") for one in wanted if one.startswith("*")]
        wanted = [one for one in wanted if not one.startswith("*")]
        converted = f"{', '.join(wanted)} = {', '.join(f'samba.to_torch({one}){cutting}' for one in wanted)}"
        converted = converted if wanted else ""
        for one in states:
            converted += f"\n{one} = tuple(samba.to_torch(part) for part in {one})"
        converted = converted.strip("\n")
        if len(targets) == 1:
            return f"({targets[0]},) = {run}\n{converted}"
        return f"{', '.join(targets)} = {run}\n{converted}"

    def _given(self, one: Input) -> str:
        """Return what the run is given for an input: as many rows as were compiled."""
        code = self.port.source.module.code_for_node(self.port.changed(one.node)).strip()
        if not self.filling:
            return code
        rows = f"{self._model_in_loop()}.output_tensors[0].shape[0]"
        if one.is_mapping:
            return f"{{key: {self.filling}({rows}, value) for key, value in {code}.items()}}"
        return f"{self.filling}({rows}, {code})"

    def _rows(self) -> str:
        """Return how many rows of the results belong to the batch."""
        first = self.cut.inputs[0]
        code = self.port.source.module.code_for_node(self.port.changed(first.node)).strip()
        return f"len(next(iter({code}.values())))" if first.is_mapping else f"len({code})"

    def _model_in_loop(self) -> str:
        first = self.training.models[0]
        for unit in self.cut.models:
            if self.port.bindings.resolve(self.training.frame, unit) == first:
                return unit
        return self.port.bindings.unit_in(self.training.frame, first) or plain_name(first.unit)

    def _parallel(self) -> str:
        """Return the arguments of a program that trains replicas."""
        if not self.port.is_distributed():
            return ""
        args = self.port.arguments(self.training.frame)
        return f"    data_parallel={args}.data_parallel,\n    reduce_on_rdu={args}.reduce_on_rdu,\n"

    def _rates(self) -> str:
        """Return the argument that sends a learning rate that changes."""
        # One learning rate for one optimizer; groups are followed by the session itself.
        if not self.port.schedules() or len(self.training.optimizers) != 1:
            return ""
        thing = self.training.optimizers[0].thing
        unit = self.port.bindings.unit_in(self.training.frame, thing)
        if not unit or self.port.has_groups(self.training.optimizers[0]):
            return ""
        return f'    hyperparam_dict={{"lr": {unit}.param_groups[0]["lr"]}},\n'

    def _conditional_text(self, run: str) -> str:
        """Return a run in one branch, and the program's own statements in the other."""
        # The other branch is the program's own code, on the host's copy of the weights.
        condition = self.cut.condition
        assert condition is not None
        test = self.port.source.code(condition)
        own = statements_text(
            one for statement in self.cut.moved for one in self.port.rewritten(statement)
        )
        indent = "    "
        inner = "\n".join(indent + line if line else line for line in run.split("\n"))
        host = "\n".join(indent + line if line else line for line in own.split("\n"))
        model = self._model_in_loop()
        return f"if {test}:\n{inner}\nelse:\n    samba.session.to_cpu({model})\n{host}"

    def _is_read(self, unit: str, statement: cst.BaseStatement) -> bool:
        """Whether anything else in a statement's function reads a unit."""
        frame = self.port.source.frame(statement)
        nodes = self.port.source.statements(frame)
        return any(unit in reads(node) for node in nodes) if unit else False

    # What a run does itself.

    def _part(self, part: StepPart) -> None:
        # Whatever is not needed any more is removed where it stands.
        edits = self.port.edits
        statement = part.statement
        if part.role is Role.BACKWARD and statement is not self.training.backward.statement:
            return
        early = self.port.source.line(statement) < self.port.source.line(self.training.entry)
        if (
            part.role is Role.ZERO
            and early
            and self.port.source.frame(statement) is self.training.level.frame
        ):
            edits.remove(statement, "part-zero", "gradients are zero when the graph is traced")
            return
        if part.role is Role.CLIP:
            self._clip(part)
        elif self.accumulates and part.role is Role.STEP:
            edits.replace(
                statement,
                [f"samba.session.run({self._step_arguments()})"],
                "accumulation",
                "the optimizer's section runs where the program steps",
            )
        elif self.accumulates and part.role is Role.ZERO:
            edits.replace(
                statement,
                ['samba.session.run(section_types=["ZEROGRAD"])'],
                "accumulation",
                "the device keeps the sum of gradients, and sets it to zero here",
            )
        else:
            edits.remove(
                statement, f"part-{part.role.name.lower()}", f"a run does {part.role.value} itself"
            )

    def _step_arguments(self) -> str:
        clipped = any(part.role is Role.CLIP for part in self.training.parts)
        rates = self._rates().strip().rstrip(",")
        sections = '["GRADNORM", "OPT"]' if clipped else '["OPT"]'
        return f"section_types={sections}" + (f", {rates}" if rates else "")

    def _clip(self, part: StepPart) -> None:
        # Other norms have no section in a PEF, and the norm itself stays on the device.
        assert part.call is not None
        limit = argument(part.call, "max_norm", 1)
        kind = argument(part.call, "norm_type", 2)
        two = kind is None or self.port.source.code(kind.value) in {"2", "2.0"}
        kept = [node.target for node in walk(part.statement) if isinstance(node, cst.AssignTarget)]
        assigned = any(self._is_read(unit_of(one), part.statement) for one in kept)
        if limit is None or not two or assigned:
            self.port.points.add(
                part.statement,
                "clipping",
                "the RDU clips by the euclidean norm, and does not return it",
                instead="give the optimizer max_grad_norm, and do not use the norm",
            )
            return
        code = self.port.clipping(part, self.training)
        if code:
            self.port.limits[root_unit(part.call.func)] = code
            self.port.edits.remove(
                part.statement, "part-clip", "the optimizer clips by max_grad_norm"
            )


def _renamed(name: str, _: cst.BaseExpression) -> cst.BaseExpression:
    return cst.Name(name)
