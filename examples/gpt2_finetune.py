"""Fine-tune GPT-2 of transformers on sequences that SambaNova's data preparation has packed.

Compile once; then compare the PEF with the model on the CPU, train, and evaluate what was trained::

    python gpt2_finetune.py compile -b 4 --pef-name gpt2
    python gpt2_finetune.py test -b 4 --pef out/gpt2/gpt2.pef
    python gpt2_finetune.py run -b 4 --pef out/gpt2/gpt2.pef --data-dir data/sums/hdf5 --save tuned.pt
    python gpt2_finetune.py run -b 4 --pef out/gpt2/gpt2.pef --data-dir data/sums/hdf5 \
        --checkpoint tuned.pt --inference

``data.py`` makes such sequences. Prompts, completions and padding weigh differently: the weights
are the gradients of the losses of single tokens, and are sent to the RDU as that.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sambaflow.samba as samba
import torch
from gpt2_model import (
    add_model_arguments,
    load_checkpoint,
    make_model,
    patch_model,
    save_checkpoint,
)
from replicas import mean, part_of, say
from sambaflow.logging import samba_logger
from sambaflow.samba import utils
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta
from sambaflow.sambacollections import OrderedSet
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import GPT2LMHeadModel

from samba_onnx.data_prep import HDF5Dataset

IGNORED = -100
"""A label that has no loss."""

PROMPT, COMPLETION, PADDING = range(3)
"""Types of tokens, as the data preparation writes them; a separator, 3, ends a completion."""


class GPT2ForFineTuning(GPT2LMHeadModel):  # type: ignore[no-untyped-call]
    """GPT-2 with a loss for every token, so that the host may weigh them."""

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: None,
        attention_mask: None,
        token_type_ids: None,
        position_ids: Tensor,
        inputs_embeds: None,
        encoder_hidden_states: None,
        encoder_attention_mask: None,
        labels: Tensor,
        use_cache: None,
    ) -> tuple[Tensor, Tensor]:
        """Return losses (batch * length,) and logits (batch, length, vocabulary)."""
        hidden = self.transformer(
            input_ids, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        logits = self.lm_head(hidden)
        criterion = nn.CrossEntropyLoss(reduction="none", ignore_index=IGNORED)
        loss = criterion(logits.view(-1, logits.size(-1)), labels.view(-1))
        return loss, logits * 1


def add_common_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of every sub-command."""
    add_model_arguments(parser)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--max-grad-norm", type=float, default=1.0)


def add_run_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--num-epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="at most so many; 0 for all")
    parser.add_argument("-lr", "--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--prompt-loss-weight", type=float, default=0.1)
    parser.add_argument("--save", help="file for the weights that were trained")


def trace_inputs(args: Namespace) -> tuple[samba.SambaTensor | None, ...]:
    """Return what the model is traced with: tensors of the shapes and names of every batch."""
    size = (args.batch_size, args.max_seq_length)
    ids = samba.randint(args.vocab_size, size, name="input_ids", batch_dim=0, dtype=torch.int32)
    positions = samba.from_torch_tensor(position_ids(args), name="position_ids", batch_dim=0)
    labels = samba.randint(args.vocab_size, size, name="labels", batch_dim=0)
    return ids, None, None, None, positions, None, None, None, labels, None


def position_ids(args: Namespace) -> Tensor:
    """Return the position of every token, (batch, length)."""
    positions = torch.arange(args.max_seq_length, dtype=torch.int32)
    return positions.repeat(args.batch_size, 1)


def make_optimizers(args: Namespace, model: GPT2ForFineTuning) -> list[samba.optim.AdamW]:
    """Return three optimizers: of embeddings, of matrices, and of what has no weight decay."""
    embeddings, decaying, others = OrderedSet(), OrderedSet(), OrderedSet()
    for name, parameter in model.named_parameters():
        if ".wte." in name or ".wpe." in name:
            embeddings.add((name, parameter))
        elif name.endswith(".bias") or ".ln_" in name:
            others.add((name, parameter))
        else:
            decaying.add((name, parameter))
    return [
        samba.optim.AdamW(
            [parameter for _, parameter in group],
            lr=1e-3,
            betas=(0.9, 0.997),
            eps=1e-8,
            weight_decay=decay,
            max_grad_norm=args.max_grad_norm,
        )
        for group, decay in (
            (embeddings, args.weight_decay),
            (decaying, args.weight_decay),
            (others, 0.0),
        )
    ]


def batches(args: Namespace, part: str, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Iterate over tokens, the tokens that follow them, and the types of those."""
    dataset: Any = HDF5Dataset(args.data_dir, part, in_memory=True)
    own = part_of(dataset, args.seed + epoch) if part == "train" else None
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=part == "train" and own is None,
        sampler=own,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed + epoch),
    )
    for batch in loader:
        ids, types = batch["input_ids"], batch["token_type_ids"]
        following = torch.roll(types, -1, dims=1)
        following[:, -1] = PADDING
        labels = torch.roll(ids, -1, dims=1).long()
        labels[following == PADDING] = IGNORED
        yield ids, labels, following


def to_samba(
    args: Namespace, ids: Tensor, labels: Tensor
) -> tuple[samba.SambaTensor, samba.SambaTensor, samba.SambaTensor]:
    """Name the tensors of a batch as those that were traced."""
    return (
        samba.from_torch_tensor(ids, name="input_ids", batch_dim=0),
        samba.from_torch_tensor(position_ids(args), name="position_ids", batch_dim=0),
        samba.from_torch_tensor(labels, name="labels", batch_dim=0),
    )


def loss_scale(types: Tensor, prompt_weight: float) -> Tensor:
    """Return what every token of a batch counts for, (batch * length,); the sum is one."""
    weights = torch.ones(types.shape)
    weights[types == PROMPT] = prompt_weight
    weights[types == PADDING] = 0.0
    return (weights / weights.sum().clamp(min=1e-6)).flatten()


def train_step(
    args: Namespace,
    inputs: Sequence[samba.SambaTensor],
    outputs: Sequence[samba.SambaTensor],
    scale: Tensor,
    learning_rate: float,
) -> float:
    """Train on a batch; return the weighted loss before."""
    hyperparameters = {"lr": learning_rate, "p": args.dropout}
    (losses,) = samba.session.run(
        input_tensors=inputs,
        output_tensors=[outputs[0]],
        hyperparam_dict=hyperparameters,
        section_types=["FWD"],
    )
    outputs[0].sn_grad = scale
    samba.session.run(
        section_types=["BCKWD", "REDUCE"],
        data_parallel=args.data_parallel,
        reduce_on_rdu=args.reduce_on_rdu,
    )
    samba.session.run(section_types=["GRADNORM"])
    samba.session.run(section_types=["OPT"])
    return float((samba.to_torch(losses) * scale).sum())


def train(args: Namespace, model: GPT2ForFineTuning, outputs: Sequence[samba.SambaTensor]) -> None:
    """Train on all batches of every epoch, and save the weights."""
    step = 0
    for epoch in range(args.num_epochs):
        for ids, labels, types in batches(args, "train", epoch):
            if args.steps and step == args.steps:
                break
            step += 1
            rate = args.learning_rate * min(1.0, step / max(1, args.warmup_steps))
            scale = loss_scale(types, args.prompt_loss_weight)
            loss = train_step(args, to_samba(args, ids, labels), outputs, scale, rate)
            say(f"epoch {epoch + 1} step {step} loss {mean(loss):.8f}")
    samba.session.to_cpu(model)
    if args.save and utils.is_main_process():
        save_checkpoint(model, args.save)


def evaluate(args: Namespace, outputs: Sequence[samba.SambaTensor]) -> None:
    """Print the mean loss and the accuracy over the tokens of all completions."""
    total, right, count = 0.0, 0, 0
    for ids, labels, types in batches(args, "dev", 0):
        labels[types == PROMPT] = IGNORED
        inputs = to_samba(args, ids, labels)
        losses, logits = samba.session.run(
            inputs, outputs, hyperparam_dict={"lr": 0.0}, section_types=["fwd"], train=False
        )
        targets = inputs[-1]
        chosen = labels != IGNORED
        predicted = samba.to_torch(logits).argmax(-1)
        right += (predicted[chosen] == targets[chosen]).sum().item()
        total += losses.sum().item()
        count += int(chosen.sum())
    print(f"evaluated {count} tokens: loss {total / count:.8f}, accuracy {right / count:.8f}")


def test(
    args: Namespace,
    model: GPT2ForFineTuning,
    inputs: Sequence[samba.SambaTensor | None],
    outputs: Sequence[samba.SambaTensor],
) -> None:
    """Compare outputs and gradients with those of the model on the CPU, without dropouts."""
    given = [tensor for tensor in inputs if tensor is not None]
    device = samba.session.run(given, outputs, {"p": 0.0}, section_types=["fwd", "bckwd"])
    samba.session.to_cpu(model)
    model.train(False)
    model.zero_grad()
    host = model(*inputs)
    host[0].backward(torch.ones_like(samba.to_torch(host[0])))
    for name, expected, got in zip(("loss", "logits"), host, device, strict=True):
        utils.assert_close(expected, got, name, threshold=1e-4)
    parameters: dict[str, Any] = dict(model.named_parameters())
    for name, parameter in parameters.items():
        utils.assert_close(parameter.grad, parameter.sn_grad, f"gradient of {name}", rtol=1e-3)
    print("the PEF computes what the CPU computes")


def main(argv: Sequence[str]) -> None:
    """Do what a command line says."""
    args = parse_app_args(
        argv=argv, common_parser_fn=add_common_arguments, run_parser_fn=add_run_arguments
    )
    utils.set_seed(args.seed)
    model = make_model(GPT2ForFineTuning, args).train()
    patch_model(model)
    samba.from_torch_model_(model)
    if args.checkpoint:
        load_checkpoint(model, args.checkpoint)
    inputs = trace_inputs(args)
    optimizers = make_optimizers(args, model)
    if args.command == "compile":
        samba.session.compile(
            model, inputs, optimizers, name="gpt2", pef_metadata=get_pefmeta(args, model)
        )
        return
    outputs = utils.trace_graph(model, inputs, optimizers, pef=args.pef, mapping=args.mapping)
    if args.command == "test":
        test(args, model, inputs, outputs)
    elif args.inference:
        evaluate(args, outputs)
    else:
        samba_logger.info(f"training {args.num_epochs} epochs")
        train(args, model, outputs)


if __name__ == "__main__":
    main(sys.argv[1:])
