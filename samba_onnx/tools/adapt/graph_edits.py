"""The graph of a training step: its module, the branch that compiles it, and the run in the loop."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from samba_onnx.safety.files import printable
from samba_onnx.tools.adapt.batch_edits import BatchEdits
from samba_onnx.tools.adapt.bindings import Thing
from samba_onnx.tools.adapt.first_batch import FirstBatch, FirstBatches
from samba_onnx.tools.adapt.graph_code import (
    compile_text,
    filling_text,
    first_batch_text,
    member,
    module_text,
    naming_text,
    plain_name,
    statements_text,
    substituted,
)
from samba_onnx.tools.adapt.name_units import attribute_name, reads, unit_of, writes
from samba_onnx.tools.adapt.port import ProgramPort
from samba_onnx.tools.adapt.roles import Role
from samba_onnx.tools.adapt.run_edits import RunEdits
from samba_onnx.tools.adapt.slice_values import Input, in_order
from samba_onnx.tools.adapt.slicing import Slice
from samba_onnx.tools.adapt.trained_step import TrainedStep

_LIKE = frozenset({"new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"})
"""Methods of a tensor that make another one of its class."""


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
        self.home = port.source.file(training.entry)
        """The file where training begins, which compiles and traces."""
        self.step = port.source.file(training.backward.statement)
        """The file with the step itself, whose names the new module reads."""
        self.accumulates = self._accumulates()
        batches = BatchEdits(port, training)
        self.filling = (
            port.names.fresh("whole_batch") if training.infers and batches.may_end() else ""
        )
        """The function that fills a smaller last batch of a program that infers."""

    def _names(self) -> GraphNames:
        # The model's own class gives the name: LeNet becomes LeNetWithLoss.
        fresh = self.port.names.fresh
        unit = plain_name(self.cut.models[0] if self.cut.models else "model")
        kind = self._class_name() or "".join(part.capitalize() for part in unit.split("_"))
        ending = (
            ("ForInference", "for_inference") if self.training.infers else ("WithLoss", "with_loss")
        )
        return GraphNames(
            fresh(f"{kind}{ending[0]}"),
            fresh(f"{unit.lower()}_{ending[1]}"),
            fresh("traced_inputs"),
            fresh("named_inputs"),
            fresh("first_inputs"),
        )

    def _class_name(self) -> str:
        made = self.port.bindings.maker(self.training.models[0]) if self.training.models else None
        found = self.port.source.definition(made.func) if made is not None else None
        return found.name.value if isinstance(found, cst.ClassDef) else ""

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
        batch = FirstBatches(self.port, self.training, self.cut.moved).batch(self.cut.inputs)
        self._set_up(batch)
        RunEdits(
            port=self.port,
            training=self.training,
            cut=self.cut,
            naming=self.names.naming,
            accumulates=self.accumulates,
            filling=self.filling,
        ).plan()

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
                name=plain_name(
                    names.kind.removesuffix("WithLoss").removesuffix("ForInference")
                ).lower(),
                arguments=port.arguments(home.frame),
                leave=f"{port.names.module('sys', self.home)}.exit()",
                utils=port.names.utils(self.home),
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
        if self.training.infers:
            text = f"samba.from_torch_model_({model})\n{text}"
            what = "the model is compiled into a PEF for inference, or traced with one"
        # Behind functions, two blank lines, as formatters have it.
        text = f"\n\n{text}" if port.source.top(entry) is entry else text
        port.edits.insert_before(entry, text, "compile-and-trace", what)

    def _new_functions(self, batch: FirstBatch, entry: cst.BaseStatement) -> None:
        # Before the statement that uses them, for programs without functions are executed from top to bottom.
        inputs = [one.name for one in in_order(self.cut.inputs)]
        sequences = [one.name for one in self.cut.inputs if one.is_sequence]
        mappings = [one.name for one in self.cut.inputs if one.is_mapping]
        names = self.names
        module = [
            self._module_text(),
            naming_text(names.naming, inputs, self._conversions(), mappings, sequences),
        ]
        if self.filling:
            torch = self.port.names.module("torch", self.step)
            module.append(filling_text(self.filling, torch))
        first = first_batch_text(
            name=names.drawing,
            arguments=batch.needed,
            body="\n".join(batch.lines),
            named=f"{names.naming}({', '.join(map(self._plain, in_order(self.cut.inputs)))})",
            generators=self.port.generators(self.home),
            own=self._own_generators(batch),
            torch=self.port.names.module("torch", self.home),
        )
        what = "what a step computes is a module with the loss in it, and its inputs have names"
        if self.step is self.home:
            self._insert_functions(entry, [*module, first], what)
            return
        self._insert_functions(self.training.backward.statement, module, what)
        self._insert_functions(entry, [first], "the first batch, whose shapes are compiled")
        if not self.port.names.can_import(self.step, self.home):
            self.port.points.add(
                self.training.backward.statement,
                "other-file",
                f"{printable(self.home.path)}, which compiles the step, cannot import this file: it is "
                "imported here, or executed",
                instead="move the step into a file of its own, which imports neither",
            )
        self.port.names.need(
            self.home, f"from {self.step.name} import {names.kind}, {names.naming}"
        )

    def _conversions(self) -> dict[str, str]:
        """Return the code that makes tensors of inputs that are none of torch, by their names."""
        found = {
            # float32, in which torch multiplies tensors by Python's numbers as well.
            one.name: f"{self.port.names.module('torch', self.step)}.tensor(float({one.name}))"
            for one in self.cut.inputs
            if one.is_number
        }
        # States that are made of a converted weight are tensors of SambaFlow already, without a name.
        if any(attribute_name(call.func) in _LIKE for call in self.port.source.calls):
            carried = [
                one for one in self.cut.inputs if unit_of(one.node) in writes(*self.cut.moved)
            ]
            found |= {
                one.name: f"samba.to_torch({'part' if one.is_sequence else one.name})"
                for one in carried
            }
        return found

    def _insert_functions(self, inner: cst.BaseStatement, texts: list[str], what: str) -> None:
        place = self.port.source.top(inner)
        text = "\n\n" + "\n\n".join(texts) + "\n\n"
        self.port.edits.insert_before(place, text, "loss-in-module", what)

    def _own_generators(self, batch: FirstBatch) -> list[str]:
        """Return the generators of torch that the program made, where the first batch can reach them."""
        if batch.copies:
            self.port.names.module("copy", self.home)
        made = []
        frame = self.training.level.frame
        for thing in self.port.bindings.things():
            maker = self.port.bindings.maker(thing)
            while maker is not None and isinstance(maker.func, cst.Attribute):
                if self.port.source.imported(maker.func) == "torch.Generator":
                    break
                # torch.Generator().manual_seed(0) returns the generator
                maker = maker.func.value if isinstance(maker.func.value, cst.Call) else None
            seen = (self.port.source.level(self.home), frame)
            is_seen = thing.owner in seen and "." not in thing.unit
            if (
                maker is not None
                and is_seen
                and self.port.source.imported(maker.func) == "torch.Generator"
            ):
                made.append(thing.unit)
                if not thing.is_global:
                    batch.needed.setdefault(thing.unit, thing.unit)
        return made

    def _plain(self, one: Input) -> str:
        """Return an input as an expression in which attributes of ``self`` are plain names."""
        codes = {unit: plain_name(unit) for unit in reads(one.node) if "." in unit}
        node = self.port.changed(one.node)
        return self.port.source.module.code_for_node(substituted(node, codes)).strip()

    def _module_text(self) -> str:
        cut = self.cut
        codes = {unit: f"self.{member(unit)}" for unit in (*cut.models, *cut.constants)}
        own = tuple(writes(*cut.moved))
        several = self._several()
        codes |= {self.port.source.code(one.node): one.name for one in cut.inputs}
        codes |= {unit: plain_name(unit) for unit in own if unit not in codes}
        if self.training.infers:
            return self._called_text(codes)
        moved = [one for statement in cut.moved for one in self.port.rewritten(statement)]
        lines = [substituted(one, codes, several) for one in moved]
        body = statements_text(lines)
        expression = self.training.backward.subject
        assert expression is not None
        loss = plain_name(cut.loss)
        if not unit_of(expression):
            text = self.port.source.module.code_for_node(
                substituted(expression, codes, several)
            ).strip()
            body = f"{body}\n{loss} = {text}".strip("\n")
        codes_of = (
            f"*{output.code}" if output.is_sequence else output.code for output in cut.outputs
        )
        results = ", ".join([plain_name(cut.loss), *codes_of])
        return module_text(
            name=self.names.kind,
            base=self.port.names.base(self.step),
            members=[
                *(member(unit) for unit in (*cut.models, *cut.constants)),
                *(member(unread_model.unit) for unread_model in self._unread_models()),
            ],
            inputs=[one.argument for one in in_order(cut.inputs)],
            body=body,
            result=results,
            about="The model with its loss: what the RDU computes in a step.",
        )

    def _called_text(self, codes: dict[str, str]) -> str:
        """Return the module of a program that only infers: the call, with names for what it is given."""
        statement, call = self.training.backward.statement, self.training.backward.call
        assert call is not None
        names = {id(one.node): cst.Name(one.name) for one in self.cut.inputs}
        args = [
            argument.with_changes(value=names.get(id(argument.value), argument.value))
            for argument in call.args
        ]
        called = statement.with_deep_changes(call, args=args)
        inner = {unit: code for unit, code in codes.items() if unit in self.cut.models}
        return module_text(
            name=self.names.kind,
            base=self.port.names.base(self.step),
            members=[member(unit) for unit in self.cut.models],
            inputs=[one.argument for one in in_order(self.cut.inputs)],
            body=statements_text([substituted(called.with_changes(leading_lines=[]), inner)]),
            result=", ".join(output.code for output in self.cut.outputs) or "None",
            about="What of the model's results the program looks at: what the RDU computes in a run.",
        )

    def _several(self) -> dict[str, list[str]]:
        """Return the inputs of calls by their text, in the order of the program."""
        names: dict[str, list[str]] = {}
        for one in self.cut.inputs:
            if isinstance(one.node, cst.Call):
                names.setdefault(self.port.source.code(one.node), []).append(one.name)
        return names

    def _member_values(self) -> list[str]:
        # By the name that the home level has for it, or the expression that makes it.
        values = []
        flow = self.port.flow(self.training)
        for unit in (*self.cut.models, *self.cut.constants):
            code = self._constant_at_home(unit) or flow.origin(unit).code or self._at_home(unit)
            if not code:
                self.port.points.add(
                    self.training.entry,
                    "value-out-of-sight",
                    f"`{unit}` is made where the training loop is, and the graph is compiled before",
                    instead=f"make `{unit}` before the training begins, and hand it to the loop",
                )
            values.append(code or unit)
        return [*values, *map(self._thing_at_home, self._unread_models())]

    def _unread_models(self) -> list[Thing]:
        """Return the modules that only a function of the program reads, which must be parts of the new one."""
        resolve = self.port.bindings.resolve
        known = [resolve(self.training.frame, unit) for unit in self.cut.models]
        return [model for model in self.training.models if model not in known]

    def _constant_at_home(self, unit: str) -> str:
        """Return a variable of the step's file as the file where training begins can read it."""
        thing = self.port.bindings.thing(self.training.frame, unit)
        if self.step is self.home or not thing.is_global or "." in unit:
            return ""
        at_home = self._at_home(unit)
        if not at_home:
            self.port.borrowed(unit, self.training.frame, self.home)
        return at_home or unit

    def _at_home(self, unit: str) -> str:
        thing = self.port.bindings.resolve(self.training.frame, unit)
        return self.port.bindings.unit_in(self.training.level.frame, thing)

    def _optimizers_at_home(self) -> str:
        units = [self._thing_at_home(optimizer.thing) for optimizer in self.training.optimizers]
        if not units:
            return "None"
        return units[0] if len(units) == 1 else f"[{', '.join(units)}]"

    def _model_at_home(self) -> str:
        return self._thing_at_home(self.training.models[0])

    def _thing_at_home(self, thing: Thing) -> str:
        unit = self.port.bindings.unit_in(self.training.level.frame, thing)
        if unit:
            return unit
        if isinstance(thing.owner, cst.ClassDef):
            return self.port.flow(self.training).origin(thing.unit).code
        owner = self.port.source.file(thing.owner)
        if thing.is_global and self.port.names.borrow(thing.unit, owner, self.home):
            return thing.unit
        self.port.points.add(
            self.training.entry,
            "value-out-of-sight",
            f"`{thing.unit}` cannot be named where the training begins",
            instead="make model and optimizer in the function that starts the training",
        )
        return thing.unit
