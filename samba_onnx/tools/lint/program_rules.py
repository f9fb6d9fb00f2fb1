"""The rules about the program around a model: inputs, loops, optimizers, calls."""

from __future__ import annotations

from textwrap import indent

from samba_onnx.tools.lint.findings import LintRule, Severity

_MODEL = """\
import sambaflow.samba as samba
import torch

model = torch.nn.Linear(4, 3)
"""
_START = f"""{_MODEL}samba.from_torch_model_(model)
image = samba.randn(8, 4, name="image", batch_dim=0)
"""


def _program(body: str) -> str:
    """Return a program that compiles a model and does something more."""
    return f"{_START}samba.session.compile(model, (image,))\n{body}"


def _training(step: str, before: str = "", after: str = "") -> str:
    """Return a program that runs steps of training."""
    return (
        f'{_START}{before}outputs = samba.utils.trace_graph(model, (image,), pef="net.pef")\n'
        f"for batch in batches:\n{indent(step, '    ')}{after}"
    )


_RUN = "loss = samba.session.run([batch], outputs)\n"

PROGRAM_RULES: tuple[LintRule, ...] = (
    LintRule(
        id="unnamed-run-input",
        severity=Severity.ERROR,
        title="An input of a run without a name",
        why="`run` matches tensors with traced inputs by their names, and not by their places.",
        instead="Give the name of the dummy input: `samba.from_torch_tensor(t, name='image')`.",
        source="SambaSession.run, input_tensors: the sn_name should match that of the traced tensor",
        example=_training(
            "x = samba.from_torch_tensor(batch)\nloss = samba.session.run([x], outputs)\n"
        ),
        better=_training(
            'x = samba.from_torch_tensor(batch, name="image")\n'
            "loss = samba.session.run([x], outputs)\n"
        ),
    ),
    LintRule(
        id="optimizer",
        severity=Severity.ERROR,
        title="An optimizer without a rule on the device",
        why="SambaFlow has AdamW and SGD; here Adam is compiled, too. No other has sections of type OPT.",
        instead="Use `samba.optim.AdamW` or `samba.optim.SGD`.",
        source="Model conversion overview: SambaFlow supports AdamW and SGD",
        example=_program("optimizer = torch.optim.RMSprop(model.parameters())\n"),
        better=_program("optimizer = samba.optim.AdamW(model.parameters())\n"),
    ),
    LintRule(
        id="missing-name",
        severity=Severity.ERROR,
        title="A call of a name that only raises",
        why="The name can be imported, since programs import more than they use; what it does is not "
        "published, and calling it is refused.",
        instead="The message names what to use in its place.",
        source="The list of what is missing in docs/migration.md",
        example=_program("samba.groupby(image)\n"),
        better=_program("samba.functional.softmax(image, dim=1)\n"),
    ),
    LintRule(
        id="unknown-name",
        severity=Severity.ERROR,
        title="A name that does not exist",
        why="The program ends there with an AttributeError or ImportError. An import inside of `try` is "
        "left alone.",
        instead="Look at docs/migration.md, which has every module and name.",
        source="Published programs and SambaFlow's documents, whose names are all known",
        example=_program("samba.session.execute([image])\n"),
        better=_program("samba.session.tracing()\n"),
    ),
    LintRule(
        id="optimizer-before-conversion",
        severity=Severity.ERROR,
        title="An optimizer of parameters that the conversion replaces",
        why="`from_torch_model_` puts parameters with a device copy in place of the module's own: an "
        "optimizer that was made before steps tensors that nothing reads, and compiling refuses it.",
        instead="Make the optimizer after `samba.from_torch_model_(model)`.",
        source="Model conversion overview: the model is converted before optimizer and dummy inputs are made",
        example=f"{_MODEL}optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n"
        "samba.from_torch_model_(model)\n",
        better=f"{_MODEL}samba.from_torch_model_(model)\n"
        "optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n",
    ),
    LintRule(
        id="refused-hook",
        severity=Severity.ERROR,
        title="A hook that cannot be compiled",
        why="It has no place in the graph of the backward pass, so the program is refused.",
        instead="Use `register_full_backward_hook` of a module or `register_hook` of a tensor, with tensor "
        "operators only.",
        source="docs/training_checklist.md, what is refused; on an RDU no Python runs in a step",
        example=_MODEL + "model.register_backward_hook(print)\n",
        better=_MODEL,
    ),
    LintRule(
        id="sections-twice",
        severity=Severity.ERROR,
        title="Sections by type and by id in one run",
        why="`run` takes one of `section_types` and `section_ids`, and refuses both.",
        instead="Leave one of them out.",
        source="SambaSession.run: you cannot specify both section_types and section_ids",
        example=_training(
            'loss = samba.session.run([batch], outputs, section_types=["FWD"], section_ids=[0])\n'
        ),
        better=_training('loss = samba.session.run([batch], outputs, section_types=["FWD"])\n'),
    ),
    LintRule(
        id="run-before-trace",
        severity=Severity.ERROR,
        title="A run of a program that was not traced",
        why="Tracing loads the PEF and sends weights to the device; before, there is nothing to run.",
        instead="Call `samba.utils.trace_graph(model, inputs, optimizer, pef=...)` once, before the first run.",
        source="SambaSession.run and its example: utils.trace_graph comes first",
        example=_START + "loss = samba.session.run([image], [])\n"
        'outputs = samba.utils.trace_graph(model, (image,), pef="net.pef")\n',
        better=_START + 'outputs = samba.utils.trace_graph(model, (image,), pef="net.pef")\n'
        "loss = samba.session.run([image], outputs)\n",
    ),
    LintRule(
        id="odd-batch",
        severity=Severity.ERROR,
        title="An odd batch size for an SN30",
        why="By default a program for an SN30 is compiled for two halves of the RDU, each of which takes "
        "half of the batch.",
        instead="Use an even batch size, or compile with `--num-tiles 4`.",
        source="Transition to SN30: the batch size must be even unless num-tiles is 4",
        example=f"{_MODEL}samba.from_torch_model_(model)\n"
        'image = samba.randn(1, 4, name="image", batch_dim=0)\n',
        better=f"{_MODEL}samba.from_torch_model_(model)\n"
        'image = samba.randn(2, 4, name="image", batch_dim=0)\n',
        target="sn30",
    ),
    LintRule(
        id="not-converted",
        severity=Severity.WARNING,
        title="A model that was not converted",
        why="Parameters are known to the device by names that the conversion gives them.",
        instead="Call `samba.from_torch_model_(model)` before the dummy inputs are made.",
        source="Model conversion overview: convert model parameters with samba.from_torch_model_",
        example=_MODEL
        + 'image = samba.randn(8, 4, name="image")\nsamba.session.compile(model, (image,))\n',
        better=_START + "samba.session.compile(model, (image,))\n",
    ),
    LintRule(
        id="evaluation-mode",
        severity=Severity.WARNING,
        title="A model to be trained that is converted in evaluation mode",
        why="SambaFlow takes a model in evaluation mode for one that only runs, and switches "
        "requires_grad of its parameters off. Here they stay as they are, and the mode is compiled: "
        "dropout does nothing.",
        instead="Call `model.train()` before `samba.from_torch_model_(model)`; `from_pretrained` of "
        "transformers returns models in evaluation mode.",
        source="SambaFlow's log: Model running in inference. Setting requires_grad of all params to False",
        example=f"{_MODEL}model.eval()\nsamba.from_torch_model_(model)\n"
        "optimizer = samba.optim.AdamW(model.parameters())\n",
        better=f"{_MODEL}model.train()\nsamba.from_torch_model_(model)\n"
        "optimizer = samba.optim.AdamW(model.parameters())\n",
    ),
    LintRule(
        id="mixed-types",
        severity=Severity.WARNING,
        title="Dummy inputs of float32 for a model of 16 bits",
        why="Products of bfloat16 weights with float32 inputs are computed in float32, here and by SambaFlow, "
        "which takes twice the memory and time. Torch itself refuses them, so that the same model does "
        "not run on the host.",
        instead="Make the dummies and the inputs of runs of the model's type: `samba.randn(8, 4, "
        "name='image', dtype=torch.bfloat16)`.",
        source="SambaTensor: operations on tensors of two types follow torch's rules of promotion",
        example=f"{_MODEL}model.bfloat16()\nsamba.from_torch_model_(model)\n"
        'image = samba.randn(8, 4, name="image")\n',
        better=f"{_MODEL}model.bfloat16()\nsamba.from_torch_model_(model)\n"
        'image = samba.randn(8, 4, name="image").bfloat16()\n',
    ),
    LintRule(
        id="unnamed-input",
        severity=Severity.WARNING,
        title="A dummy input without a name",
        why="A run tells its inputs apart by name. An input without one is called like a parameter of "
        "forward here, and has a number for a name in SambaFlow.",
        instead="Name it: `samba.randn(8, 4, name='image')`.",
        source="Model conversion overview: a SambaTensor has a unique name for interfacing with the RDU",
        example=f"{_MODEL}samba.from_torch_model_(model)\n"
        "samba.session.compile(model, (samba.randn(8, 4),))\n",
        better=f"{_MODEL}samba.from_torch_model_(model)\n"
        'samba.session.compile(model, (samba.randn(8, 4, name="image"),))\n',
    ),
    LintRule(
        id="smaller-last-batch",
        severity=Severity.WARNING,
        title="A last batch of another size",
        why="Shapes are compiled in: a batch of what is left at the end of a data set is refused.",
        instead="Give `drop_last=True` to the DataLoader.",
        source="SambaSession.run and Model conversion overview: inputs have the shapes of the dummy inputs",
        example=_training(
            "loss = samba.session.run([batch], outputs)\n",
            "batches = torch.utils.data.DataLoader(data, batch_size=8)\n",
        ),
        better=_training(
            "loss = samba.session.run([batch], outputs)\n",
            "batches = torch.utils.data.DataLoader(data, batch_size=8, drop_last=True)\n",
        ),
    ),
    LintRule(
        id="transfer-per-step",
        severity=Severity.WARNING,
        title="A copy between host and device in every step",
        why="`to_cpu` and `to_rdu` copy every parameter, buffer and optimizer state, and reading `sn_data` "
        "or `sn_grad` copies a tensor, while the device waits.",
        instead="Copy once per epoch or every so many steps; what a step is to return is asked for as an output.",
        source="Model conversion overview: transferring data between RDU and CPU has a significant "
        "performance hit; SambaTensor.sn_data",
        example=_training(_RUN + "samba.session.to_cpu(model)\n"),
        better=_training(_RUN, after="samba.session.to_cpu(model)\n"),
    ),
    LintRule(
        id="host-step",
        severity=Severity.WARNING,
        title="A step of torch beside that of the device",
        why="`run` executes backward and optimizer on the device. Those of torch compute on the copies "
        "that the host has, which the device does not read.",
        instead="Leave them out; choose with `section_types` what a run executes.",
        source="SambaSession.run: without section_types it runs the whole schedule",
        example=_training(
            _RUN + "optimizer.step()\n", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        ),
        better=_training(_RUN, "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"),
    ),
    LintRule(
        id="gradient-overwritten",
        severity=Severity.WARNING,
        title="A gradient that the next backward overwrites",
        why="BCKWD of a program that was compiled without gradient_accumulation writes gradients and adds "
        "nothing up: an OPT after several batches sees those of the last one only.",
        instead="Compile with `gradient_accumulation=True`, and run `ZEROGRAD` after `OPT`.",
        source="SambaSession.compile, gradient_accumulation; SambaSession.run, section type ZEROGRAD",
        example=_training(
            'samba.session.run([batch], [], section_types=["FWD", "BCKWD"])\n'
            'if batch.is_last:\n    samba.session.run([], [], section_types=["OPT"])\n'
        ),
        better=_training(
            'samba.session.run([batch], [], section_types=["FWD", "BCKWD"])\n'
            'samba.session.run([], [], section_types=["OPT"])\n'
        ),
    ),
    LintRule(
        id="schedule-without-rate",
        severity=Severity.WARNING,
        title="A schedule whose rate no run is given",
        why="On an RDU the rate is a register that `hyperparam_dict` sets, and an optimizer on the host "
        "is not looked at. Here what a schedule writes counts, too.",
        instead="Give each run the rate: `hyperparam_dict={'lr': scheduler.get_last_lr()[0]}`.",
        source="SambaSession.run, hyperparam_dict: hyperparameters control the RDU's behaviour at runtime",
        example=_training(
            _RUN,
            "optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n"
            "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n",
            "scheduler.step()\n",
        ),
        better=_training(
            'rate = {"lr": scheduler.get_last_lr()[0]}\n'
            "loss = samba.session.run([batch], outputs, hyperparam_dict=rate)\n",
            "optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n"
            "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n",
            "scheduler.step()\n",
        ),
    ),
    LintRule(
        id="traced-hook",
        severity=Severity.WARNING,
        title="A hook, which runs while a program is traced",
        why="No Python runs in a step on an RDU. Tensor operators of a hook become part of the program; "
        "what it counts, logs or keeps happens once.",
        instead="Return the tensor from forward; or read it after the run.",
        source="Model conversion overview: tracing converts a dynamic graph to a static one; what is "
        "compiled of hooks stands in docs/training_checklist.md",
        example=_MODEL + "model.register_forward_hook(print)\n",
        better=_MODEL,
    ),
    LintRule(
        id="other-device",
        severity=Severity.WARNING,
        title="Something that is moved to another accelerator",
        why="Host tensors stay in the memory of the CPU; `run` and `rdu()` copy them to the RDU.",
        instead="Leave it out.",
        source="SambaTensor.to takes a type, and no device",
        example=_MODEL + 'model.to("cuda")\n',
        better=_MODEL,
    ),
    LintRule(
        id="legacy-names",
        severity=Severity.WARNING,
        title="Batch normalisation with legacy names",
        why="SambaFlow must not use legacy names of operators for models with batch normalisation.",
        instead="Call `samba.session.use_legacy_names(False)` before compiling and tracing.",
        source="SambaSession.use_legacy_names: must be disabled for models using BatchNorm",
        example=_program("model = torch.nn.BatchNorm2d(3)\n"),
        better=_program("samba.session.use_legacy_names(False)\nmodel = torch.nn.BatchNorm2d(3)\n"),
    ),
    LintRule(
        id="deprecated",
        severity=Severity.WARNING,
        title="A name that SambaFlow has deprecated",
        why="It works still, with a warning, and need not do so in the next release.",
        instead="Use `samba.session.compile` in place of `common_app_driver`, `from_torch_model_` in place of "
        "`from_torch_`, and leave deprecated arguments out.",
        source="Model conversion overview and SambaSession.compile: this function is deprecated",
        example=f"{_MODEL}samba.from_torch_(model)\n",
        better=f"{_MODEL}samba.from_torch_model_(model)\n",
    ),
    LintRule(
        id="int64-target",
        severity=Severity.NOTE,
        title="Classes of int64",
        why="CrossEntropyLoss has targets of int16 on an RDU: those of int64 are converted in every run, "
        "and a class above 32767 does not fit.",
        instead="Make dummy targets, and those of runs, of `torch.int16`, or of `torch.int32` for more classes.",
        source="The compiler's log: the dtype of targets is torch.int64, however only int16 is currently "
        "supported, implicit conversion will happen",
        example=f'{_MODEL}label = samba.randint(3, (8,), name="label")\n',
        better=f'{_MODEL}label = samba.randint(3, (8,), name="label", dtype=torch.int16)\n',
    ),
    LintRule(
        id="unused-output",
        severity=Severity.NOTE,
        title="An output that every step fetches and nothing reads",
        why="`run` copies the outputs that it is asked for to the host.",
        instead="Ask for those that are read: `samba.session.run(inputs, outputs[:1])`.",
        source="SambaSession.run, output_tensors: can be a subset of the model's outputs",
        example=_training("loss, _ = samba.session.run([batch], outputs)\n"),
        better=_training("(loss,) = samba.session.run([batch], outputs[:1])\n"),
    ),
    LintRule(
        id="item-per-step",
        severity=Severity.NOTE,
        title="A number that every step takes to Python",
        why="The device waits while Python handles a number; programs for an RDU are often bound by the "
        "host.",
        instead="Append the tensor to a list, and compute numbers once after the loop.",
        source="Model conversion overview: write your model to stay on RDU as much as possible",
        example=_training(_RUN + "losses.append(loss[0].item())\n"),
        better=_training(_RUN + "losses.append(loss[0])\n"),
    ),
    LintRule(
        id="print-per-step",
        severity=Severity.NOTE,
        title="Output of every step",
        why="The device waits while the terminal scrolls.",
        instead="Print every so many steps: `if step % 100 == 0:`.",
        source="Model conversion overview: write your model to stay on RDU as much as possible",
        example=_training(_RUN + "print(loss)\n"),
        better=_training(_RUN, after="print(loss)\n"),
    ),
)
"""Rules about programs, the worst first."""
