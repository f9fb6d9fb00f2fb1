"""The forward pass and the loss of a step, as the Trainer of transformers computes them."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from samba_onnx.tools.adapt.graph_code import statements_text
from samba_onnx.tools.adapt.inlining import Inlining, RefusedMethodError
from samba_onnx.tools.adapt.name_units import target_units, unit_of, walk
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trainer_arguments import TrainerCall


class TrainerStep:
    """Writes a step of a Trainer up to its loss."""

    def __init__(
        self, source: ProgramFile, trained: TrainerCall, fresh: Callable[[str], str]
    ) -> None:
        """Take what is trained.

        Args:
            source: The program.
            trained: The calls that make the Trainer, and let it train.
            fresh: Returns a name that is free.
        """
        self._source = source
        self._trained = trained
        self._fresh = fresh
        self._names = {node.value for node in source.nodes if isinstance(node, cst.Name)}

    def lines(self, inputs: str) -> list[str]:
        """Return the statements of a step up to its loss.

        Args:
            inputs: The variable that holds a batch.

        Raises:
            RefusedMethodError: Nobody can tell what the loss is.
        """
        source, trained = self._source, self._trained
        owner = source.definition(trained.trainer.func)
        if not isinstance(owner, cst.ClassDef):
            loss = self._loss()
            return [*self._forward(inputs), f"loss = {loss}"]
        methods = {
            one.name.value: one for one in owner.body.body if isinstance(one, cst.FunctionDef)
        }
        function = methods.pop("compute_loss", None)
        if function is None or methods:
            where = next(iter(methods.values()), owner)
            raise RefusedMethodError(where, "its class does more than compute a loss")
        return self._computed(function, inputs)

    def _forward(self, inputs: str) -> list[str]:
        """Return the lines that call the model."""
        model = self._trained.model
        made = self._maker()
        name = self._source.imported(made.func) if made is not None else ""
        if not name.endswith("LMHeadModel"):
            return [f"outputs = {model}(**{inputs})"]
        # Of these alone the Trainer does not know that the last token predicts nothing, and divides by all labels.
        count = self._fresh("number_of_labels")
        return [
            f'{count} = {inputs}["labels"].ne(-100).sum()',
            f"outputs = {model}(**{inputs}, num_items_in_batch={count})",
        ]

    def _maker(self) -> cst.Call | None:
        """Return the call that makes the model; None if nobody can tell."""
        source, trained = self._source, self._trained
        values = [trained.settings.parts["model"]]
        if unit_of(values[0]):
            values = [
                node.value
                for node in source.nodes
                if isinstance(node, cst.Assign)
                and trained.model in target_units(node.targets[0].target)
            ]
        # A variable of two values may have either where it is trained.
        made = values[0] if len(values) == 1 else None
        return made if isinstance(made, cst.Call) else None

    def _computed(self, function: cst.FunctionDef, inputs: str) -> list[str]:
        """Return the statements of ``compute_loss`` in the place of its call."""
        params = function.params
        names = [parameter.name.value for parameter in params.params]
        if len(names) < 3:
            raise RefusedMethodError(function, "compute_loss takes no model and inputs")
        for node in walk(function.body):
            if isinstance(node, cst.Name) and node.value in {names[0], *names[4:]}:
                raise RefusedMethodError(
                    node,
                    f"compute_loss uses `{node.value}`",
                    "compute the loss of model and inputs alone",
                )
        # What else is passed, as the number of items, was not used.
        plain = function.with_changes(
            params=params.with_changes(star_kwarg=None, params=params.params[:4])
        )
        fresh = cst.parse_expression
        done = Inlining({}, "trainer", self._fresh, [*self._names]).method(
            plain, [fresh(self._trained.model), fresh(inputs), fresh("False")]
        )
        value = done.result
        # `(loss, outputs) if return_outputs else loss`: a training step asks for the loss alone.
        if isinstance(value, cst.IfExp):
            value = value.orelse
        if value is None or isinstance(value, cst.Tuple):
            raise RefusedMethodError(function, "compute_loss returns no loss alone")
        code = self._source.module.code_for_node(value)
        text = statements_text(done.statements)
        return [text, "" if code == "loss" else f"loss = {code}"]

    def _loss(self) -> str:
        """Return where the outputs of the model have its loss."""
        source, trained, made = self._source, self._trained, self._maker()
        if made is not None and source.imported(made.func).startswith("transformers."):
            return "outputs.loss"
        owner = source.definition(made.func) if made is not None else None
        forward = next(
            (one for one in owner.body.body if isinstance(one, cst.FunctionDef) and one.name.value == "forward"), None,
        ) if isinstance(owner, cst.ClassDef) else None  # fmt: skip
        returned = (
            [node.value for node in walk(forward) if isinstance(node, cst.Return)]
            if forward
            else []
        )
        # The Trainer takes "loss" of a dictionary, and the first of a tuple.
        if returned and all(isinstance(one, cst.Dict) for one in returned):
            return 'outputs["loss"]'
        if returned and all(isinstance(one, cst.Tuple) for one in returned):
            return "outputs[0]"
        if returned and all(_is_output(source, one) for one in returned):
            return "outputs.loss"
        raise RefusedMethodError(
            trained.trainer,
            "nobody can say here where the model returns its loss",
            "override compute_loss",
        )


def _is_output(source: ProgramFile, value: cst.BaseExpression | None) -> bool:
    return isinstance(value, cst.Call) and source.imported(value.func).startswith("transformers.")
