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
        "unnamed-run-input",
        Severity.ERROR,
        "An input of a run without a name",
        "`run` matches tensors with traced inputs by their names, and not by their places.",
        "Give the name of the dummy input: `samba.from_torch_tensor(t, name='image')`.",
        "SambaSession.run, input_tensors: the sn_name should match that of the traced tensor",
        _training("x = samba.from_torch_tensor(batch)\nloss = samba.session.run([x], outputs)\n"),
        _training(
            'x = samba.from_torch_tensor(batch, name="image")\n'
            "loss = samba.session.run([x], outputs)\n"
        ),
    ),
    LintRule(
        "optimizer",
        Severity.ERROR,
        "An optimizer without a rule on the device",
        "SambaFlow has AdamW and SGD; here Adam is compiled, too. No other has sections of type OPT.",
        "Use `samba.optim.AdamW` or `samba.optim.SGD`.",
        "Model conversion overview: SambaFlow supports AdamW and SGD",
        _program("optimizer = torch.optim.RMSprop(model.parameters())\n"),
        _program("optimizer = samba.optim.AdamW(model.parameters())\n"),
    ),
    LintRule(
        "missing-name",
        Severity.ERROR,
        "A call of a name that only raises",
        "The name can be imported, since programs import more than they use; what it does is not "
        "published, and calling it is refused.",
        "The message names what to use in its place.",
        "The list of what is missing in docs/migration.md",
        _program("samba.groupby(image)\n"),
        _program("samba.functional.softmax(image, dim=1)\n"),
    ),
    LintRule(
        "unknown-name",
        Severity.ERROR,
        "A name that does not exist",
        "The program ends there with an AttributeError or ImportError. An import inside of `try` is "
        "left alone.",
        "Look at docs/migration.md, which has every module and name.",
        "Published programs and SambaFlow's documents, whose names are all known",
        _program("samba.session.execute([image])\n"),
        _program("samba.session.tracing()\n"),
    ),
    LintRule(
        "optimizer-before-conversion",
        Severity.ERROR,
        "An optimizer of parameters that the conversion replaces",
        "`from_torch_model_` puts parameters with a device copy in place of the module's own: an "
        "optimizer that was made before steps tensors that nothing reads, and compiling refuses it.",
        "Make the optimizer after `samba.from_torch_model_(model)`.",
        "Model conversion overview: the model is converted before optimizer and dummy inputs are made",
        f"{_MODEL}optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n"
        "samba.from_torch_model_(model)\n",
        f"{_MODEL}samba.from_torch_model_(model)\n"
        "optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n",
    ),
    LintRule(
        "refused-hook",
        Severity.ERROR,
        "A hook that cannot be compiled",
        "It has no place in the graph of the backward pass, so the program is refused.",
        "Use `register_full_backward_hook` of a module or `register_hook` of a tensor, with tensor "
        "operators only.",
        "docs/training_checklist.md, what is refused; on an RDU no Python runs in a step",
        _MODEL + "model.register_backward_hook(print)\n",
        _MODEL,
    ),
    LintRule(
        "sections-twice",
        Severity.ERROR,
        "Sections by type and by id in one run",
        "`run` takes one of `section_types` and `section_ids`, and refuses both.",
        "Leave one of them out.",
        "SambaSession.run: you cannot specify both section_types and section_ids",
        _training(
            'loss = samba.session.run([batch], outputs, section_types=["FWD"], section_ids=[0])\n'
        ),
        _training('loss = samba.session.run([batch], outputs, section_types=["FWD"])\n'),
    ),
    LintRule(
        "run-before-trace",
        Severity.ERROR,
        "A run of a program that was not traced",
        "Tracing loads the PEF and sends weights to the device; before, there is nothing to run.",
        "Call `samba.utils.trace_graph(model, inputs, optimizer, pef=...)` once, before the first run.",
        "SambaSession.run and its example: utils.trace_graph comes first",
        _START + "loss = samba.session.run([image], [])\n"
        'outputs = samba.utils.trace_graph(model, (image,), pef="net.pef")\n',
        _START + 'outputs = samba.utils.trace_graph(model, (image,), pef="net.pef")\n'
        "loss = samba.session.run([image], outputs)\n",
    ),
    LintRule(
        "odd-batch",
        Severity.ERROR,
        "An odd batch size for an SN30",
        "By default a program for an SN30 is compiled for two halves of the RDU, each of which takes "
        "half of the batch.",
        "Use an even batch size, or compile with `--num-tiles 4`.",
        "Transition to SN30: the batch size must be even unless num-tiles is 4",
        f"{_MODEL}samba.from_torch_model_(model)\n"
        'image = samba.randn(1, 4, name="image", batch_dim=0)\n',
        f"{_MODEL}samba.from_torch_model_(model)\n"
        'image = samba.randn(2, 4, name="image", batch_dim=0)\n',
        target="sn30",
    ),
    LintRule(
        "not-converted",
        Severity.WARNING,
        "A model that was not converted",
        "Parameters are known to the device by names that the conversion gives them.",
        "Call `samba.from_torch_model_(model)` before the dummy inputs are made.",
        "Model conversion overview: convert model parameters with samba.from_torch_model_",
        _MODEL
        + 'image = samba.randn(8, 4, name="image")\nsamba.session.compile(model, (image,))\n',
        _START + "samba.session.compile(model, (image,))\n",
    ),
    LintRule(
        "evaluation-mode",
        Severity.WARNING,
        "A model to be trained that is converted in evaluation mode",
        "SambaFlow takes a model in evaluation mode for one that only runs, and switches "
        "requires_grad of its parameters off. Here they stay as they are, and the mode is compiled: "
        "dropout does nothing.",
        "Call `model.train()` before `samba.from_torch_model_(model)`; `from_pretrained` of "
        "transformers returns models in evaluation mode.",
        "SambaFlow's log: Model running in inference. Setting requires_grad of all params to False",
        f"{_MODEL}model.eval()\nsamba.from_torch_model_(model)\n"
        "optimizer = samba.optim.AdamW(model.parameters())\n",
        f"{_MODEL}model.train()\nsamba.from_torch_model_(model)\n"
        "optimizer = samba.optim.AdamW(model.parameters())\n",
    ),
    LintRule(
        "mixed-types",
        Severity.WARNING,
        "Dummy inputs of float32 for a model of 16 bits",
        "Products of bfloat16 weights with float32 inputs are computed in float32, here and by SambaFlow, "
        "which takes twice the memory and time. Torch itself refuses them, so that the same model does "
        "not run on the host.",
        "Make the dummies and the inputs of runs of the model's type: `samba.randn(8, 4, "
        "name='image', dtype=torch.bfloat16)`.",
        "SambaTensor: operations on tensors of two types follow torch's rules of promotion",
        f"{_MODEL}model.bfloat16()\nsamba.from_torch_model_(model)\n"
        'image = samba.randn(8, 4, name="image")\n',
        f"{_MODEL}model.bfloat16()\nsamba.from_torch_model_(model)\n"
        'image = samba.randn(8, 4, name="image").bfloat16()\n',
    ),
    LintRule(
        "unnamed-input",
        Severity.WARNING,
        "A dummy input without a name",
        "A run tells its inputs apart by name. An input without one is called like a parameter of "
        "forward here, and has a number for a name in SambaFlow.",
        "Name it: `samba.randn(8, 4, name='image')`.",
        "Model conversion overview: a SambaTensor has a unique name for interfacing with the RDU",
        f"{_MODEL}samba.from_torch_model_(model)\n"
        "samba.session.compile(model, (samba.randn(8, 4),))\n",
        f"{_MODEL}samba.from_torch_model_(model)\n"
        'samba.session.compile(model, (samba.randn(8, 4, name="image"),))\n',
    ),
    LintRule(
        "smaller-last-batch",
        Severity.WARNING,
        "A last batch of another size",
        "Shapes are compiled in: a batch of what is left at the end of a data set is refused.",
        "Give `drop_last=True` to the DataLoader.",
        "SambaSession.run and Model conversion overview: inputs have the shapes of the dummy inputs",
        _training(
            "loss = samba.session.run([batch], outputs)\n",
            "batches = torch.utils.data.DataLoader(data, batch_size=8)\n",
        ),
        _training(
            "loss = samba.session.run([batch], outputs)\n",
            "batches = torch.utils.data.DataLoader(data, batch_size=8, drop_last=True)\n",
        ),
    ),
    LintRule(
        "transfer-per-step",
        Severity.WARNING,
        "A copy between host and device in every step",
        "`to_cpu` and `to_rdu` copy every parameter, buffer and optimizer state, and reading `sn_data` "
        "or `sn_grad` copies a tensor, while the device waits.",
        "Copy once per epoch or every so many steps; what a step is to return is asked for as an output.",
        "Model conversion overview: transferring data between RDU and CPU has a significant "
        "performance hit; SambaTensor.sn_data",
        _training(_RUN + "samba.session.to_cpu(model)\n"),
        _training(_RUN, after="samba.session.to_cpu(model)\n"),
    ),
    LintRule(
        "host-step",
        Severity.WARNING,
        "A step of torch beside that of the device",
        "`run` executes backward and optimizer on the device. Those of torch compute on the copies "
        "that the host has, which the device does not read.",
        "Leave them out; choose with `section_types` what a run executes.",
        "SambaSession.run: without section_types it runs the whole schedule",
        _training(
            _RUN + "optimizer.step()\n", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        ),
        _training(_RUN, "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"),
    ),
    LintRule(
        "gradient-overwritten",
        Severity.WARNING,
        "A gradient that the next backward overwrites",
        "BCKWD of a program that was compiled without gradient_accumulation writes gradients and adds "
        "nothing up: an OPT after several batches sees those of the last one only.",
        "Compile with `gradient_accumulation=True`, and run `ZEROGRAD` after `OPT`.",
        "SambaSession.compile, gradient_accumulation; SambaSession.run, section type ZEROGRAD",
        _training(
            'samba.session.run([batch], [], section_types=["FWD", "BCKWD"])\n'
            'if batch.is_last:\n    samba.session.run([], [], section_types=["OPT"])\n'
        ),
        _training(
            'samba.session.run([batch], [], section_types=["FWD", "BCKWD"])\n'
            'samba.session.run([], [], section_types=["OPT"])\n'
        ),
    ),
    LintRule(
        "schedule-without-rate",
        Severity.WARNING,
        "A schedule whose rate no run is given",
        "On an RDU the rate is a register that `hyperparam_dict` sets, and an optimizer on the host "
        "is not looked at. Here what a schedule writes counts, too.",
        "Give each run the rate: `hyperparam_dict={'lr': scheduler.get_last_lr()[0]}`.",
        "SambaSession.run, hyperparam_dict: hyperparameters control the RDU's behaviour at runtime",
        _training(
            _RUN,
            "optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n"
            "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n",
            "scheduler.step()\n",
        ),
        _training(
            'rate = {"lr": scheduler.get_last_lr()[0]}\n'
            "loss = samba.session.run([batch], outputs, hyperparam_dict=rate)\n",
            "optimizer = samba.optim.SGD(model.parameters(), lr=0.1)\n"
            "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n",
            "scheduler.step()\n",
        ),
    ),
    LintRule(
        "traced-hook",
        Severity.WARNING,
        "A hook, which runs while a program is traced",
        "No Python runs in a step on an RDU. Tensor operators of a hook become part of the program; "
        "what it counts, logs or keeps happens once.",
        "Return the tensor from forward; or read it after the run.",
        "Model conversion overview: tracing converts a dynamic graph to a static one; what is "
        "compiled of hooks stands in docs/training_checklist.md",
        _MODEL + "model.register_forward_hook(print)\n",
        _MODEL,
    ),
    LintRule(
        "other-device",
        Severity.WARNING,
        "Something that is moved to another accelerator",
        "Host tensors stay in the memory of the CPU; `run` and `rdu()` copy them to the RDU.",
        "Leave it out.",
        "SambaTensor.to takes a type, and no device",
        _MODEL + 'model.to("cuda")\n',
        _MODEL,
    ),
    LintRule(
        "legacy-names",
        Severity.WARNING,
        "Batch normalisation with legacy names",
        "SambaFlow must not use legacy names of operators for models with batch normalisation.",
        "Call `samba.session.use_legacy_names(False)` before compiling and tracing.",
        "SambaSession.use_legacy_names: must be disabled for models using BatchNorm",
        _program("model = torch.nn.BatchNorm2d(3)\n"),
        _program("samba.session.use_legacy_names(False)\nmodel = torch.nn.BatchNorm2d(3)\n"),
    ),
    LintRule(
        "deprecated",
        Severity.WARNING,
        "A name that SambaFlow has deprecated",
        "It works still, with a warning, and need not do so in the next release.",
        "Use `samba.session.compile` in place of `common_app_driver`, `from_torch_model_` in place of "
        "`from_torch_`, and leave deprecated arguments out.",
        "Model conversion overview and SambaSession.compile: this function is deprecated",
        f"{_MODEL}samba.from_torch_(model)\n",
        f"{_MODEL}samba.from_torch_model_(model)\n",
    ),
    LintRule(
        "int64-target",
        Severity.NOTE,
        "Classes of int64",
        "CrossEntropyLoss has targets of int16 on an RDU: those of int64 are converted in every run, "
        "and a class above 32767 does not fit.",
        "Make dummy targets, and those of runs, of `torch.int16`, or of `torch.int32` for more classes.",
        "The compiler's log: the dtype of targets is torch.int64, however only int16 is currently "
        "supported, implicit conversion will happen",
        f'{_MODEL}label = samba.randint(3, (8,), name="label")\n',
        f'{_MODEL}label = samba.randint(3, (8,), name="label", dtype=torch.int16)\n',
    ),
    LintRule(
        "unused-output",
        Severity.NOTE,
        "An output that every step fetches and nothing reads",
        "`run` copies the outputs that it is asked for to the host.",
        "Ask for those that are read: `samba.session.run(inputs, outputs[:1])`.",
        "SambaSession.run, output_tensors: can be a subset of the model's outputs",
        _training("loss, _ = samba.session.run([batch], outputs)\n"),
        _training("(loss,) = samba.session.run([batch], outputs[:1])\n"),
    ),
    LintRule(
        "item-per-step",
        Severity.NOTE,
        "A number that every step takes to Python",
        "The device waits while Python handles a number; programs for an RDU are often bound by the "
        "host.",
        "Append the tensor to a list, and compute numbers once after the loop.",
        "Model conversion overview: write your model to stay on RDU as much as possible",
        _training(_RUN + "losses.append(loss[0].item())\n"),
        _training(_RUN + "losses.append(loss[0])\n"),
    ),
    LintRule(
        "print-per-step",
        Severity.NOTE,
        "Output of every step",
        "The device waits while the terminal scrolls.",
        "Print every so many steps: `if step % 100 == 0:`.",
        "Model conversion overview: write your model to stay on RDU as much as possible",
        _training(_RUN + "print(loss)\n"),
        _training(_RUN, after="print(loss)\n"),
    ),
)
"""Rules about programs, the worst first."""
