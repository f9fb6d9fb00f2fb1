"""Programs on Lightning: the loop that its trainer goes through, written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from samba_onnx.tools.adapt.graph_code import statements_text
from samba_onnx.tools.adapt.inlining import InlinedMethod, Inlining, RefusedMethodError
from samba_onnx.tools.adapt.lightning_module import LightningClass, cleaned_module, is_lightning
from samba_onnx.tools.adapt.name_units import attribute_name, target_units, unit_of, walk
from samba_onnx.tools.adapt.plain_form import PlainForm
from samba_onnx.tools.adapt.source import ProgramFile

_WITHOUT_EFFECT: Final = frozenset(
    {
        "accelerator", "logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary",
        "log_every_n_steps", "default_root_dir", "deterministic", "num_sanity_val_steps", "max_epochs",
        "gradient_clip_val", "benchmark", "barebones", "inference_mode",
    }
)  # fmt: skip
"""Arguments of a trainer that say nothing of what is computed, or that are written out."""
_DEVICES: Final = frozenset({"devices", "gpus", "num_nodes"})
"""Arguments that say how many processes train; several sum their gradients up."""
_ONE: Final = frozenset({"1", "[0]", "None", "'auto'", '"auto"'})


@dataclass
class _Fit:
    """What a trainer is asked to fit."""

    call: cst.Call
    statement: cst.BaseStatement
    trainer: cst.Call
    model: str
    """The variable of the module."""
    makes: str
    """The line that makes it, where the call did."""
    owner: LightningClass
    train: str = ""
    validation: str = ""
    """Expressions of the loaders; empty for none."""
    before: list[str] = field(default_factory=list)
    """Lines that prepare the data."""


def with_lightning_loop(form: PlainForm) -> PlainForm:
    """Write the loop of a program that Lightning trains.

    Args:
        form: The program.
    """
    source = form.source
    # Most programs end here: to look for classes takes a while.
    if not any("lightning" in file.text for file in source.files):
        return form
    classes = [
        node
        for node in source.nodes
        if isinstance(node, cst.ClassDef) and is_lightning(source, node, "Module")
    ]
    if not classes:
        return form
    try:
        fit = _fit(source)
        text = _Rewriting(source, fit).text()
    except RefusedMethodError as error:
        form.refuse(
            error.node,
            "framework",
            f"the training loop is inside of Lightning, and cannot be written out: {error}",
            instead=error.instead
            or "write the loop out: batches, the model, its loss, backward() and step()",
        )
        return form
    form.refuse(
        fit.call,
        "framework",
        "the loop of Lightning is written out; what its trainer shows, logs and saves is not",
        instead="print what you want to see",
        blocks=False,
    )
    return form.rewritten({source.path: text})


def _fit(source: ProgramFile) -> _Fit:
    # Loop and module are rewritten as one text; in two files each would need the names of the other.
    if len(source.files) > 1 and any("lightning" in file.text for file in source.files[1:]):
        raise RefusedMethodError(
            source.module.body[0], "the module is in another file than the trainer"
        )
    made = [one for one in source.calls if _is_trainer(source, one)]
    fits = [one for one in source.calls if attribute_name(one.func) == "fit"]
    # A second fit goes on with the optimizer of the first, which Lightning keeps.
    if len(made) != 1 or len(fits) != 1:
        where: cst.CSTNode = [source.module.body[0], *made, *fits][-1]
        raise RefusedMethodError(where, "there is not one trainer that fits once")
    trainer, call = made[0], fits[0]
    _refuse_settings(source, trainer)
    statement = source.statement(call)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    # A loop is statements: it cannot stand inside of an expression.
    if not isinstance(small, cst.Expr) or small.value is not call:
        raise RefusedMethodError(call, "the call of fit is a part of something else")
    _refuse_other_uses(source, trainer, call)
    return _given(source, call, statement, trainer)


def _is_trainer(source: ProgramFile, call: cst.Call) -> bool:
    name = source.imported(call.func)
    return name.endswith(".Trainer") and "lightning" in name


def _refuse_settings(source: ProgramFile, trainer: cst.Call) -> None:
    for one in trainer.args:
        name = one.keyword.value if one.keyword is not None else ""
        code = source.code(one.value)
        is_one = name in _DEVICES and code in _ONE
        is_default = is_one or (name, code) in {
            ("precision", "32"),
            ("callbacks", "None"),
            ("callbacks", "[]"),
        }
        # What is not known to leave the numbers alone is refused: new versions have new settings.
        if name not in _WITHOUT_EFFECT and not is_default:
            raise RefusedMethodError(one, f"`{source.code(one)}` changes what the trainer does")
    if not any(
        argument.keyword is not None and argument.keyword.value == "max_epochs"
        for argument in trainer.args
    ):
        # Without it Lightning trains for 1000 epochs, with a warning that nobody reads.
        raise RefusedMethodError(trainer, "nothing says how many epochs it trains")


def _refuse_other_uses(source: ProgramFile, trainer: cst.Call, fit: cst.Call) -> None:
    # `trainer.test(...)`, `trainer.callback_metrics`: loops and results of Lightning's own.
    bound = source.parent(trainer)
    names = target_units(bound.targets[0].target) if isinstance(bound, cst.Assign) else []
    for node in source.nodes:
        if (
            isinstance(node, cst.Attribute)
            and unit_of(node.value) in names
            and node is not fit.func
        ):
            raise RefusedMethodError(
                node,
                f"`{source.code(node)}` is Lightning's, too",
                "write what it does behind the training",
            )


def _given(
    source: ProgramFile, call: cst.Call, statement: cst.BaseStatement, trainer: cst.Call
) -> _Fit:
    named = {
        argument.keyword.value: argument.value
        for argument in call.args
        if argument.keyword is not None
    }
    plain = [argument.value for argument in call.args if argument.keyword is None]
    for name, value in zip(
        ("model", "train_dataloaders", "val_dataloaders", "datamodule"), plain, strict=False
    ):
        named.setdefault(name, value)
    if set(named) - {
        "model",
        "train_dataloaders",
        "train_dataloader",
        "val_dataloaders",
        "datamodule",
    }:
        raise RefusedMethodError(call, "it is given more than a model and loaders")
    model = named.get("model")
    if model is None:
        raise RefusedMethodError(call, "it is given no model")
    unit, makes = unit_of(model), ""
    made: cst.BaseExpression | None = model
    if unit:
        values = [
            node
            for node in source.nodes
            if isinstance(node, cst.Assign) and unit in target_units(node.targets[0].target)
        ]
        # A variable of two values may have either where it is fitted.
        made = values[0].value if len(values) == 1 else None
    else:
        unit, makes = "model", f"model = {source.code(model)}"
    found = source.definition(made.func) if isinstance(made, cst.Call) else None
    if not isinstance(found, cst.ClassDef) or not is_lightning(source, found, "Module"):
        raise RefusedMethodError(call, "nobody can say here of which class the module is")
    owner = LightningClass(source, found)
    fit = _Fit(call, statement, trainer, model=unit, makes=makes, owner=owner)
    _loaders(source, fit, named)
    return fit


def _loaders(source: ProgramFile, fit: _Fit, named: dict[str, cst.BaseExpression]) -> None:
    data = named.get("datamodule")
    train = named.get("train_dataloaders") or named.get("train_dataloader")
    if data is None and train is not None and _data_class(source, train):
        # fit takes data modules at the place of loaders, too.
        data, train = train, None
    validation = named.get("val_dataloaders")
    if data is not None:
        _data_module(source, fit, data)
        return
    # A loader that is given goes before the module's own, as in Lightning.
    if train is None and "train_dataloader" in fit.owner.methods:
        fit.before.append(f"train_loader = {fit.model}.train_dataloader()")
        fit.train = "train_loader"
        if "val_dataloader" in fit.owner.methods:
            fit.before.append(f"val_loader = {fit.model}.val_dataloader()")
            fit.validation = "val_loader"
        return
    if train is None:
        raise RefusedMethodError(fit.call, "it is given no loader")
    fit.train, fit.validation = (
        source.code(train),
        source.code(validation) if validation is not None else "",
    )


def _data_class(source: ProgramFile, value: cst.BaseExpression) -> cst.ClassDef | None:
    unit = unit_of(value)
    made: list[cst.BaseExpression] = [value]
    if unit:
        made = [
            node.value
            for node in source.nodes
            if isinstance(node, cst.Assign) and unit in target_units(node.targets[0].target)
        ]
    found = (
        source.definition(made[0].func)
        if len(made) == 1 and isinstance(made[0], cst.Call)
        else None
    )
    return (
        found
        if isinstance(found, cst.ClassDef) and is_lightning(source, found, "DataModule")
        else None
    )


def _data_module(source: ProgramFile, fit: _Fit, value: cst.BaseExpression) -> None:
    owner = _data_class(source, value)
    if owner is None:
        raise RefusedMethodError(value, "nobody can say here of which class the data module is")
    methods = LightningClass(source, owner).methods
    unit = unit_of(value)
    if not unit:
        unit = "data_module"
        fit.before.append(f"data_module = {source.code(value)}")
    # In the order in which a trainer calls them.
    if "prepare_data" in methods:
        fit.before.append(f"{unit}.prepare_data()")
    if "setup" in methods:
        fit.before.append(f'{unit}.setup("fit")')
    fit.before.append(f"train_loader = {unit}.train_dataloader()")
    fit.train = "train_loader"
    if "val_dataloader" in methods:
        fit.before.append(f"val_loader = {unit}.val_dataloader()")
        fit.validation = "val_loader"


class _Rewriting:
    """Writes the loop in the place of the call of fit, and modules of torch for those of Lightning."""

    def __init__(self, source: ProgramFile, fit: _Fit) -> None:
        self._source = source
        self._fit = fit
        self._names = {node.value for node in source.nodes if isinstance(node, cst.Name)}
        frame = source.frame(fit.call)
        inner = source.statements(frame)
        self._around = {
            node.value
            for one in inner
            if not isinstance(one, cst.FunctionDef | cst.ClassDef)
            for node in walk(one)
            if isinstance(node, cst.Name)
        }

    def text(self) -> str:
        """Return the program without Lightning."""
        source, fit = self._source, self._fit
        loop = self._loop()
        config = source.files[0].module.config_for_parsing
        parsed = list(cst.parse_module(loop + "\n", config).body)
        lines = getattr(fit.statement, "leading_lines", ())
        parsed[0] = parsed[0].with_changes(leading_lines=lines)
        # Nothing but fit used it, which was refused otherwise.
        trainer = source.statement(fit.trainer)
        return cleaned_module(source, fit.model, {trainer: [], fit.statement: parsed})

    def _loop(self) -> str:
        fit = self._fit
        inlining = Inlining(fit.owner.methods, fit.model, self._fresh, [*self._around])
        optimizing = fit.owner.optimizing(inlining)
        epochs = next(
            self._source.code(argument.value)
            for argument in fit.trainer.args
            if argument.keyword and argument.keyword.value == "max_epochs"
        )
        clip = next(
            (self._source.code(argument.value) for argument in fit.trainer.args
             if argument.keyword and argument.keyword.value == "gradient_clip_val" and self._source.code(argument.value) != "None"), "",
        )  # fmt: skip
        lines = [fit.makes, *fit.before, *optimizing.lines]
        lines.append(f"for epoch in range({epochs}):")
        # In each epoch, for validation leaves the module in the mode of evaluation.
        body = [f"{fit.model}.train()"]
        step, result = self._step(inlining, "training_step", fit.train)
        body += step
        inner = [
            f"loss = {result}" if result != "loss" else "",
            "optimizer.zero_grad()",
            "loss.backward()",
        ]
        if clip:
            # Norm is what a trainer clips by, if it is told no algorithm; another one was refused.
            inner.append(f"torch.nn.utils.clip_grad_norm_({fit.model}.parameters(), {clip})")
        # Lightning zeroes before the backward pass, and steps schedulers behind the optimizer.
        inner += ["optimizer.step()", optimizing.every_step]
        body += [_indented(one) for one in inner if one]
        if fit.validation and "validation_step" in fit.owner.methods:
            step, _ = self._step(inlining, "validation_step", fit.validation)
            body += [f"{fit.model}.eval()", "with torch.no_grad():", *map(_indented, step)]
        body.append(optimizing.every_epoch)
        lines += [_indented(one) for one in body if one]
        return "\n".join(line for line in lines if line)

    def _step(self, inlining: Inlining, name: str, loader: str) -> tuple[list[str], str]:
        """Return the loop over a loader with the statements of a method, and what the method returns."""
        function = self._fit.owner.methods.get(name)
        if function is None:
            raise RefusedMethodError(self._fit.call, f"the module has no {name}")
        params = [parameter.name.value for parameter in function.params.params]
        # A third one is the number of the loader, which several loaders have.
        if not 2 <= len(params) <= 3:
            raise RefusedMethodError(
                function, f"{name} takes other arguments than a batch and its number"
            )
        done = inlining.method(function, [])
        body = statements_text(done.statements) or "pass"
        # What is no tensor of the loop, as `self.log`, was left out; a result may be in a dictionary.
        result = _loss(function, done) if name == "training_step" else ""
        counter = params[2] if len(params) == 3 else ""
        uses = counter and any(
            isinstance(node, cst.Name) and node.value == counter
            for statement in done.statements
            for node in walk(statement)
        )
        head = (
            f"for {counter}, {params[1]} in enumerate({loader}):"
            if uses
            else f"for {params[1]} in {loader}:"
        )
        return [head, *(_indented(line) for line in body.split("\n"))], result

    def _fresh(self, name: str) -> str:
        count = 2
        while f"{name}_{count}" in self._names:
            count += 1
        self._names.add(f"{name}_{count}")
        return f"{name}_{count}"


def _loss(function: cst.FunctionDef, done: InlinedMethod) -> str:
    value = done.result
    if isinstance(value, cst.Dict):
        value = next(
            (element.value for element in value.elements
             if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString)
             and element.key.evaluated_value == "loss"), None,
        )  # fmt: skip
    if value is None or unit_of(value) == "None":
        raise RefusedMethodError(
            function, "training_step returns no loss", "let it return the loss"
        )
    return cst.Module(body=[]).code_for_node(value)


def _indented(line: str) -> str:
    return "\n".join(f"    {one}" if one else one for one in line.split("\n"))
