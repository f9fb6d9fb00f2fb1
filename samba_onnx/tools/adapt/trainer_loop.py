"""Programs on the Trainer of transformers: the loop that it goes through, written out."""

from __future__ import annotations

from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.inlining import RefusedMethodError
from samba_onnx.tools.adapt.name_units import target_units, unit_of
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.source import ProgramFile
from samba_onnx.tools.adapt.trainer_arguments import TrainerCall, TrainerSettings, trainer_settings
from samba_onnx.tools.adapt.trainer_step import TrainerStep

_NO_DECAY: Final = r'[r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]'
"""What the Trainer's own list of parameters without decay is made by."""


def with_trainer_loop(form: PlainForm) -> PlainForm:
    """Write the loop of a program that the Trainer of transformers trains.

    Args:
        form: The program.
    """
    source = form.source
    if not any("Trainer" in file.text for file in source.files):
        return form
    made = [call for call in source.calls if _is_trainer(source, call)]
    if not made:
        return form
    try:
        trained = _trained(source, made)
        texts = _Writing(source, trained).texts()
    except RefusedMethodError as error:
        form.refuse(
            error.node,
            "framework",
            f"the training loop is inside of the Trainer, and cannot be written out: {error}",
            instead=error.instead
            or "write the loop out: batches, the model, its loss, backward() and step()",
        )
        return form
    form.refuse(
        trained.train,
        "framework",
        "the loop of the Trainer is written out; what it logs and saves is not, and a smaller last batch is left out",
        instead="print and save what you want to have",
        blocks=False,
    )
    loop, compared = texts
    return form.rewritten({source.path: loop}).comparing({source.path: compared})


def _is_trainer(source: ProgramFile, call: cst.Call) -> bool:
    """Whether a call makes a Trainer, or an object of a class of the program that is derived from it."""
    if source.imported(call.func) == "transformers.Trainer":
        return True
    owner = source.definition(call.func)
    return isinstance(owner, cst.ClassDef) and any(
        source.imported(base.value) == "transformers.Trainer" for base in owner.bases
    )


def _trained(source: ProgramFile, made: list[cst.Call]) -> TrainerCall:
    if len(made) != 1 or source.file(made[0]) is not source.files[0]:
        raise RefusedMethodError(made[-1], "there is not one Trainer in the file that is executed")
    trainer = made[0]
    bound = source.parent(trainer)
    names = target_units(bound.targets[0].target) if isinstance(bound, cst.Assign) else []
    if len(names) != 1:
        raise RefusedMethodError(trainer, "the Trainer is kept in no variable")
    calls = []
    for node in source.nodes:
        if not isinstance(node, cst.Attribute) or unit_of(node.value) != names[0]:
            continue
        call = source.parent(node)
        if node.attr.value != "train" or not isinstance(call, cst.Call) or call.args:
            raise RefusedMethodError(
                node,
                f"`{source.code(node)}` is the Trainer's, too",
                "write what it does behind the training",
            )
        calls.append(call)
    if len(calls) != 1 or not isinstance(source.parent(calls[0]), cst.Expr):
        raise RefusedMethodError(trainer, "it is not one line of its own that trains")
    settings = trainer_settings(source, trainer)
    model = settings.parts.get("model")
    if model is None or "train_dataset" not in settings.parts:
        raise RefusedMethodError(trainer, "it is given no model, or no data")
    codes = {name: source.code(value) for name, value in settings.parts.items()}
    before = []
    taken = {node.value for node in source.nodes if isinstance(node, cst.Name)}
    for name in settings.parts:
        # Before the seed is set, and in the order in which Python evaluates arguments.
        if name in {"model", "train_dataset", "data_collator"} and "(" in codes[name]:
            free = f"trained_{name}" if name in taken else name
            before.append(f"{free} = {codes[name]}")
            codes[name] = free
    return TrainerCall(trainer, calls[0], settings, codes["model"], tuple(before), codes)


class _Writing:
    """Writes the loop in the place of ``trainer.train()``."""

    def __init__(self, source: ProgramFile, trained: TrainerCall) -> None:
        self._source = source
        self._trained = trained
        self._names = {node.value for node in source.nodes if isinstance(node, cst.Name)}

    def texts(self) -> tuple[str, str]:
        """Return the program with a loop of its own, and the original without a smaller last batch."""
        source, trained = self._source, self._trained
        settings = trained.settings
        own: dict[cst.BaseStatement, list[cst.BaseStatement]] = {
            one: [] for one in _removed(source, trained)
        }
        seed = settings["seed"] or "42"
        made = self._parsed([*trained.before, f"transformers.set_seed({seed})"])
        replaced = {
            **own,
            source.statement(trained.trainer): made,
            source.statement(trained.train): self._parsed(self._loop()),
        }
        changed = source.module.visit(_Replacing(source, replaced))
        assert isinstance(changed, cst.Module)
        return self._with_imports(changed), self._compared()

    def _parsed(self, lines: list[str]) -> list[cst.BaseStatement]:
        text = "\n".join(line for line in lines if line) + "\n"
        return list(cst.parse_module(text, self._source.files[0].module.config_for_parsing).body)

    def _with_imports(self, module: cst.Module) -> str:
        bound = {name for one in module.body for node in [one] for name in _imported(node)}
        lines = [
            f"import {name}" for name in ("torch", "transformers", "math") if name not in bound
        ]
        place = next((place for place, one in enumerate(module.body) if _imported(one)), 0)
        # Behind imports of __future__, which come first; the first import that binds a name is none of them.
        body = [*module.body[:place], *self._parsed(lines), *module.body[place:]]
        return module.with_changes(body=body).code

    def _compared(self) -> str:
        """Return the original with whole batches only, as a graph of one shape has them."""
        made = self._trained.settings.made
        if self._trained.settings["dataloader_drop_last"] == "True":
            return self._source.files[0].text
        if made is None:
            given = cst.parse_expression(
                "transformers.TrainingArguments(dataloader_drop_last=True)"
            )
            where, arg = self._trained.trainer, _keyword("args", given)
        else:
            where, arg = made, _keyword("dataloader_drop_last", cst.Name("True"))
        kept = [
            argument
            for argument in where.args
            if argument.keyword is None or argument.keyword.value != "dataloader_drop_last"
        ]
        module = self._source.files[0].module.deep_replace(
            where, where.with_changes(args=[*_separated(kept), arg])
        )
        assert isinstance(module, cst.Module)
        return self._with_imports(module) if made is None else module.code

    def _loop(self) -> list[str]:
        given, model = self._trained.settings, self._trained.model
        code = self._trained.codes
        loader, inputs = self._fresh("train_loader"), self._fresh("inputs")
        collator = code.get("data_collator", "transformers.default_data_collator")
        optimizing, scheduler = self._optimizing(loader)
        lines = [
            f"{loader} = torch.utils.data.DataLoader(",
            f"    {code['train_dataset']},",
            f"    batch_size={given['per_device_train_batch_size'] or '8'},",
            f"    shuffle=True,\n    collate_fn={collator},\n    drop_last=True,\n)",
        ]
        step = TrainerStep(self._source, self._trained, self._fresh).lines(inputs)
        clip = given["max_grad_norm"] or "1.0"
        body = [
            f"{model}.train()",
            *step,
            "loss.backward()",
            f"torch.nn.utils.clip_grad_norm_({model}.parameters(), {clip})"
            if clip not in {"0", "0.0", "None"}
            else "",
            "optimizer.step()",
            f"{scheduler}.step()",
            "optimizer.zero_grad()",
        ]
        return [*lines, *optimizing, *self._loops(loader, inputs, [one for one in body if one])]

    def _loops(self, loader: str, inputs: str, body: list[str]) -> list[str]:
        given = self._trained.settings
        most, epochs = given["max_steps"], given["num_train_epochs"] or "3"
        indented = [f"        {line}" for one in body for line in one.split("\n")]
        if most in {"", "-1"} and epochs.removesuffix(".0").isdigit():
            return [
                f"for epoch in range({epochs.removesuffix('.0')}):",
                f"    for {inputs} in {loader}:",
                *indented,
            ]
        # A part of an epoch, or a number of steps: the Trainer ends in the midst of its data.
        count = self._fresh("finished_steps")
        return [
            f"{count} = 0",
            f"for epoch in range(math.ceil(number_of_steps / len({loader}))):",
            f"    for {inputs} in {loader}:",
            *indented,
            f"        {count} += 1",
            f"        if {count} == number_of_steps:",
            "            break",
        ]

    def _optimizing(self, loader: str) -> tuple[list[str], str]:
        """Return the lines that make optimizer and schedule, and the variable of the schedule."""
        given, model = self._trained.settings, self._trained.model
        if "optimizers" in given.parts:
            raise RefusedMethodError(
                self._trained.trainer, "it is given optimizers", "step them in a loop of your own"
            )
        # torch's AdamW decays by 0.01 where nobody says otherwise, the Trainer by nothing.
        decay = given["weight_decay"]
        parameters = f"{model}.parameters(), weight_decay=0.0"
        lines = []
        if decay not in {"", "0", "0.0"}:
            lines = [
                f"decayed = set(transformers.trainer_pt_utils.get_parameter_names({model}, [torch.nn.LayerNorm], {_NO_DECAY}))",
                "parameter_groups = [",
                f'    {{"params": [p for n, p in {model}.named_parameters() if n in decayed], "weight_decay": {decay}}},',
                f'    {{"params": [p for n, p in {model}.named_parameters() if n not in decayed], "weight_decay": 0.0}},',
                "]",
            ]
            parameters = "parameter_groups"
        betas = f"({given['adam_beta1'] or '0.9'}, {given['adam_beta2'] or '0.999'})"
        most, epochs = given["max_steps"], given["num_train_epochs"] or "3"
        steps = f"math.ceil({epochs} * len({loader}))" if most in {"", "-1"} else most
        kind = given["lr_scheduler_type"] or '"linear"'
        return [
            *lines,
            f"optimizer = torch.optim.AdamW(\n    {parameters},\n    lr={given['learning_rate'] or '5e-5'},\n"
            f"    betas={betas},\n    eps={given['adam_epsilon'] or '1e-8'},\n)",
            f"number_of_steps = {steps}",
            f"scheduler = transformers.get_scheduler(\n    {kind}, optimizer, {_warmup(given)}, number_of_steps\n)",
        ], "scheduler"

    def _fresh(self, name: str) -> str:
        free, count = name, 1
        while free in self._names:
            count += 1
            free = f"{name}_{count}"
        self._names.add(free)
        return free


def _warmup(given: TrainerSettings) -> str:
    """Return the number of steps in which the rate rises, as code."""
    ratio, steps = given["warmup_ratio"], given["warmup_steps"] or "0"
    if ratio and steps == "0":
        return f"math.ceil({ratio} * number_of_steps)"
    # Less than one is a share of all steps.
    if steps.replace(".", "", 1).isdigit():
        return (
            steps if float(steps) >= 1 or steps == "0" else f"math.ceil({steps} * number_of_steps)"
        )
    return f"{steps} if {steps} >= 1 else math.ceil({steps} * number_of_steps)"


def _imported(statement: cst.CSTNode) -> list[str]:
    """Return the modules that a statement imports by their own names."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if isinstance(small, cst.ImportFrom):
        return [] if unit_of(small.module) == "__future__" else [""]
    return [name.evaluated_name for name in small.names] if isinstance(small, cst.Import) else []


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    space = cst.SimpleWhitespace("")
    return cst.Arg(value, cst.Name(name), cst.AssignEqual(space, space))


def _separated(arguments: list[cst.Arg]) -> list[cst.Arg]:
    return [
        argument.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        for argument in arguments
    ]


def _removed(source: ProgramFile, trained: TrainerCall) -> list[cst.BaseStatement]:
    """Return the statements that only the Trainer needed: its class, and its arguments if nobody else reads them."""
    # A line that others read as well stays: it is the author's, and does no harm.
    found: list[cst.BaseStatement] = []
    owner = source.definition(trained.trainer.func)
    if isinstance(owner, cst.ClassDef):
        found.append(owner)
    made = trained.settings.made
    given = trained.settings.parts.get("args")
    unit = unit_of(given)
    if made is not None and unit:
        uses = [
            node
            for node in source.nodes
            if unit_of(node) == unit
            and node is not given
            and not isinstance(source.parent(node), cst.AssignTarget)
        ]
        if not uses:
            found.append(source.statement(made))
    return found


class _Replacing(cst.CSTTransformer):
    """Puts statements in the place of others."""

    def __init__(
        self, source: ProgramFile, replaced: dict[cst.BaseStatement, list[cst.BaseStatement]]
    ) -> None:
        super().__init__()
        self._source = source
        self._replaced = replaced

    def on_leave(  # type: ignore[override]  # one method for statements of all types
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]:
        if not isinstance(original_node, cst.BaseStatement) or original_node not in self._replaced:
            return updated_node
        lines = list(self._replaced[original_node])
        if not lines:
            return cst.RemoveFromParent()
        # The author's comments stay above what takes the place of the line.
        lines[0] = lines[0].with_changes(leading_lines=getattr(original_node, "leading_lines", ()))
        return cst.FlattenSentinel(lines)
