"""The patterns that programs are made of, by the names that changes and open points have in JSON."""

from __future__ import annotations

from typing import Final

ADAPTED: Final = {
    "inference": "programs without a backward pass: the call of their model is a run, on a line of its own",
    "imports": "`import torch` and what else the program imports; SambaFlow is imported behind it",
    "command-line": "argparse at the level of the module, in a function, in `get_parser()` or as a parent; one command of click, fire or typer; constants; none at all",
    "from-torch-model": "`model.parameters()` in an optimizer: the model is converted before",
    "optimizer": "SGD, Adam, AdamW, several of them, groups of parameters; all defaults that differ are stated",
    "loss-in-module": "criteria as modules, as functions, several and weighted sums, penalties of weights: a module with the loss",
    "compile-and-trace": "the place before the first step: the branch that compiles, or the trace",
    "run": "forward pass, loss, `backward()` and `step()`: one run",
    "part-zero": "`zero_grad()` of optimizer or model, with or without `set_to_none`, and `p.grad = None`",
    "part-backward": "`loss.backward()`, also of an expression",
    "part-step": "`optimizer.step()`",
    "part-clip": "`clip_grad_norm_`: `max_grad_norm` of the optimizer",
    "part-scaler": "`scaler.scale`, `unscale_`, `step` and `update`",
    "accumulation": "a step after several batches: sections of their own",
    "outputs": "`outputs.logits` and other attributes of a model's result",
    "drop-last": "loaders: a smaller last batch is left out",
    "device": "`.to(device)`, `.cuda()`, `torch.device`, `torch.cuda.*`, `pin_memory`, `DataParallel`, `torch.compile`",
    "autocast": "`autocast`: the type of arithmetic is an option of the compilation",
    "accelerate": "`Accelerator` in one process: `gradient_accumulation_steps`, `prepare`, `backward`, `gather_for_metrics`, `unwrap_model`, `accumulate`, ...",
    "replicas": "`init_process_group`, ranks and samplers: `--data-parallel`",
    "weights-to-host": "evaluation, `state_dict()`, averages of weights: weights are copied to the host before",
    "weights-to-device": "`load_state_dict()` while it trains: weights are copied to the RDU behind it",
}
"""What is adapted, as people write it."""

OPEN: Final = {
    "drop-last": "a loader whose last batch may be smaller",
    "autocast": "a narrower type of arithmetic",
    "adam-with-decay": "Adam with weight decay, which SambaFlow does not document",
    "optimizer": "another optimizer than SGD, Adam and AdamW",
    "foreign-optimizer": "a library that is given the optimizer, and steps or changes it",
    "clipping": "clipping by another norm, of a part of the parameters, or whose result is used",
    "several-steps": "several backward passes, as of GANs; without any, several calls of models",
    "no-training": "no backward pass, and no line that calls a model",
    "model-call": "a model that is called inside of an expression that decides whether or how often, or with `*inputs`",
    "no-optimizer": "an optimizer that is not of `torch.optim`, or in another file",
    "no-model": "parameters of which nobody can tell the module",
    "model-trains-itself": "a module that makes its own optimizer",
    "kept-graph": "`retain_graph` and `create_graph`",
    "no-zero-grad": "gradients that are never set to zero",
    "framework": "a loop inside of ignite, a Trainer, or of Lightning where it does more than its methods say; what accelerate alone has; of Lightning's own, that its log is not written",
    "other-file": "a name of another file that the file with the loop cannot import",
    "iterator": "an iterator that can be gone through only once",
    "host-work-between": "work on the host between forward pass and loss",
    "conditional-backward": "a step that depends on what the model computed",
    "changing-branch": "a branch by a value that changes",
    "carried-state": "a state of several tensors that is None in the first step, or not a tuple everywhere",
    "value-out-of-sight": "a value that only the loop knows",
    "arguments-by-place": "words of the command line that are taken from `sys.argv` by their places",
    "command-line": "a command line that nobody can follow",
    "command-line-library": "several commands of click, or options that argparse has no like of; absl, hydra and other parsers",
    "reserved-argument": "an option that SambaFlow has for something else, and subcommands",
    "rate-before-step": "a rate that is set between forward pass and step, beside work on the outputs",
    "lasting-evaluation": "`eval()` between steps, and never `train()` again",
    "left-step": "`continue`, `break` or `return` between forward pass and step",
    "second-step": "an optimizer that steps twice by the same gradients",
    "optimizer-state": "`optimizer.state` that is changed while it trains",
    "random-numbers": "random numbers that the forward pass draws itself, other than by dropout",
    "weights-written": "weights that are written, or gradients that are read, on the host",
    "spawned-replicas": "`torch.multiprocessing.spawn`",
}
"""What is left to a person, or to know."""
