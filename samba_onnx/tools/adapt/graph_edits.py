"""The graph of a training step: its module, the branch that compiles it, and the run in the loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import libcst as cst

from samba_onnx.tools.adapt.bindings import Thing
from samba_onnx.tools.adapt.first_batch import FirstBatch, FirstBatches
from samba_onnx.tools.adapt.graph_code import (
    compile_text,
    first_batch_text,
    member,
    module_text,
    naming_text,
    plain_name,
    statements_text,
    substituted,
)
from samba_onnx.tools.adapt.name_units import argument, reads, root_unit, unit_of, writes
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.roles import Role, StepPart
from samba_onnx.tools.adapt.slice_values import Input
from samba_onnx.tools.adapt.slicing import Slice
from samba_onnx.tools.adapt.source import walk
from samba_onnx.tools.adapt.trained_step import TrainedStep


@dataclass(frozen=True)
class GraphNames:
    """Names that the adapted program has for what is new in it."""

    kind: str
    module: str
    inputs: str
    naming: str
    drawing: str


class GraphEdits:
    """Plans what makes a training step one graph of the RDU."""

    def __init__(self, port: ProgramPort, training: TrainedStep, cut: Slice) -> None:
        self.port = port
        self.training = training
        self.cut = cut
        self.names = self._names()
        self.accumulates = self._accumulates()

    def _names(self) -> GraphNames:
        # The model's own class gives the name: LeNet becomes LeNetWithLoss.
        fresh = self.port.names.fresh
        unit = plain_name(self.cut.models[0] if self.cut.models else "model")
        kind = self._class_name() or "".join(part.capitalize() for part in unit.split("_"))
        return GraphNames(
            fresh(f"{kind}WithLoss"),
            fresh(f"{unit.lower()}_with_loss"),
            fresh("traced_inputs"),
            fresh("named_inputs"),
            fresh("first_inputs"),
        )

    def _class_name(self) -> str:
        made = self.port.bindings.maker(self.training.models[0]) if self.training.models else None
        name = unit_of(made.func) if made is not None else ""
        return name if name in self.port.source.classes else ""

    def _accumulates(self) -> bool:
        """Whether some backward passes are followed by no step."""
        # A step in a block that the backward pass is not in happens less often than that.
        inner = self.training.backward.statement
        for part in self.training.parts:
            if (
                part.role is Role.STEP
                and self.port.source.frame(part.statement) is self.training.frame
            ):
                block = self.port.source.block(part.statement)
                same = any(self.port.source.contains(one, inner) for one in block)
                if not same:
                    return True
        return False

    def plan(self) -> None:
        """Plan all edits."""
        # The text of the module first: it is made of statements that the run then replaces.
        batch = FirstBatches(self.port, self.training).batch(self.cut.inputs)
        self._set_up(batch)
        self._run()
        for node, name in self.cut.renamed:
            self.port.edits.rewrite(
                node, partial(_renamed, name), "outputs", "it is an output of the run"
            )
        for part in self.training.parts:
            self._part(part)

    # The module with the loss, and what is around it.

    def _set_up(self, batch: FirstBatch) -> None:
        # Before the first step, and behind all that loads or freezes weights.
        home = self.training.level
        entry = self.training.entry
        names, port = self.names, self.port
        call = f"{names.drawing}({', '.join(batch.needed.values())})"
        given = ", ".join(self._member_values())
        optimizers = self._optimizers_at_home()
        model = self._model_at_home()
        text = (
            f"{names.inputs} = {call}\n{names.module} = {names.kind}({given})\n"
            + compile_text(
                module=names.module,
                inputs=names.inputs,
                optimizer=optimizers,
                name=plain_name(names.kind.removesuffix("WithLoss")).lower(),
                arguments=port.arguments(home.frame),
                leave=f"{port.names.module('sys')}.exit()",
            )
            + f"\n{model}.output_tensors = {names.module}.output_tensors"
        )
        if self.accumulates:
            text = text.replace(
                "loss_indices=[0],\n    )",
                "loss_indices=[0],\n        gradient_accumulation=True,\n    )",
                1,
            )
            text += '\nsamba.session.run(section_types=["ZEROGRAD"])'
        self._new_functions(batch, entry)
        what = "model, loss and optimizer are compiled into a PEF, or traced with one"
        port.edits.insert_before(entry, text, "compile-and-trace", what)

    def _new_functions(self, batch: FirstBatch, entry: cst.BaseStatement) -> None:
        # Before the statement that uses them, for programs without functions are executed from top to bottom.
        inputs = [one.name for one in self.cut.inputs]
        numbers = [one.name for one in self.cut.inputs if one.is_number]
        mappings = [one.name for one in self.cut.inputs if one.is_mapping]
        names = self.names
        generators = self.port.generators()
        texts = [
            self._module_text(),
            naming_text(names.naming, inputs, numbers, mappings),
            first_batch_text(
                names.drawing,
                batch.needed,
                "\n".join(batch.lines) or "pass",
                f"{names.naming}({', '.join(map(self._plain, self.cut.inputs))})",
                generators,
            ),
        ]
        place = self.port.source.top(entry)
        self.port.edits.insert_before(
            place,
            "\n\n" + "\n\n".join(texts) + "\n\n",
            "loss-in-module",
            "what a step computes is a module with the loss in it, and its inputs have names",
        )

    def _plain(self, one: Input) -> str:
        """Return an input as an expression in which attributes of ``self`` are plain names."""
        codes = {unit: plain_name(unit) for unit in reads(one.node) if "." in unit}
        return self.port.source.module.code_for_node(substituted(one.node, codes)).strip()

    def _module_text(self) -> str:
        cut = self.cut
        codes = {unit: f"self.{member(unit)}" for unit in (*cut.models, *cut.constants)}
        own = tuple(writes(*cut.moved))
        codes |= {self.port.source.code(one.node): one.name for one in cut.inputs}
        codes |= {unit: plain_name(unit) for unit in own if unit not in codes}
        moved = [one for statement in cut.moved for one in self.port.rewritten(statement)]
        lines = [substituted(one, codes) for one in moved]
        body = statements_text(lines)
        expression = self.training.backward.subject
        assert expression is not None
        loss = plain_name(cut.loss)
        if not unit_of(expression):
            text = self.port.source.module.code_for_node(substituted(expression, codes)).strip()
            body = f"{body}\n{loss} = {text}".strip("\n")
        results = ", ".join([plain_name(cut.loss), *(one.code for one in cut.outputs)])
        return module_text(
            name=self.names.kind,
            base=self.port.names.base(),
            members=[member(unit) for unit in (*cut.models, *cut.constants)],
            inputs=sorted(
                (f"**{one.name}" if one.is_mapping else one.name for one in cut.inputs),
                key=lambda name: name.startswith("**"),
            ),
            body=body,
            result=results,
        )

    def _member_values(self) -> list[str]:
        # By the name that the home level has for it, or the expression that makes it.
        values = []
        flow = self.port.flow(self.training)
        for unit in (*self.cut.models, *self.cut.constants):
            code = flow.origin(unit).code or self._at_home(unit)
            if not code:
                self.port.points.add(
                    self.training.entry,
                    "value-out-of-sight",
                    f"`{unit}` is made where the training loop is, and the graph is compiled before",
                    instead=f"make `{unit}` before the training begins, and hand it to the loop",
                )
            values.append(code or unit)
        return values

    def _at_home(self, unit: str) -> str:
        thing = self.port.bindings.resolve(self.training.frame, unit)
        return self.port.bindings.unit_in(self.training.level.frame, thing)

    def _optimizers_at_home(self) -> str:
        units = [self._thing_at_home(one.thing) for one in self.training.optimizers]
        return units[0] if len(units) == 1 else f"[{', '.join(units)}]"

    def _model_at_home(self) -> str:
        return self._thing_at_home(self.training.models[0])

    def _thing_at_home(self, thing: Thing) -> str:
        unit = self.port.bindings.unit_in(self.training.level.frame, thing)
        if unit:
            return unit
        if isinstance(thing.owner, cst.ClassDef):
            return self.port.flow(self.training).origin(thing.unit).code
        self.port.points.add(
            self.training.entry,
            "value-out-of-sight",
            f"`{thing.unit}` cannot be named where the training begins",
            instead="make model and optimizer in the function that starts the training",
        )
        return thing.unit

    # The run in the loop.

    def _run(self) -> None:
        # One run in the place of the first statement; the others are gone.
        place = self.cut.place or self.training.backward.statement
        code = self._run_text()
        if self.cut.condition is not None:
            code = self._conditional_text(code)
        what = "the RDU computes forward pass, loss, gradients and step in one run"
        if self.cut.place is None or place is self.training.backward.statement:
            self.port.edits.replace(self.training.backward.statement, [code], "run", what)
        for one in self.cut.moved:
            if one is place:
                self.port.edits.replace(one, [code], "run", what)
            else:
                self.port.edits.remove(
                    one, "loss-in-module", "it is computed in the module with the loss"
                )

    def _run_text(self) -> str:
        # Converted to torch at once: what follows is the program's own, and expects tensors of torch.
        cut = self.cut
        inputs = ", ".join(self.port.source.code(one.node) for one in cut.inputs)
        rates = self._rates()
        sections = '    section_types=["FWD", "BCKWD"],\n' if self.accumulates else ""
        shown = [cut.loss] if cut.loss_is_read else []
        computed = [one.name for one in cut.outputs]
        targets = [*(shown or ["_"]), *computed]
        run = (
            f"samba.session.run(\n"
            f"    input_tensors={self.names.naming}({inputs}),\n"
            f"    output_tensors={self._model_in_loop()}.output_tensors,\n"
            f"{rates}{sections}{self._parallel()})"
        )
        if not shown and not cut.outputs:
            return run
        wanted = [*shown, *computed]
        converted = f"{', '.join(wanted)} = {', '.join(f'samba.to_torch({one})' for one in wanted)}"
        if targets == [cut.loss]:
            return f"({cut.loss},) = {run}\n{converted}"
        return f"{', '.join(targets)} = {run}\n{converted}"

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
        assigned = any(isinstance(node, cst.Assign) for node in walk(part.statement))
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
