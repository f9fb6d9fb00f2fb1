"""Llama, trained on token sequences without ever being whole in the host's memory.

The model is made of parameters that have shapes only. What fills each of them when it is sent to
the RDU is random numbers, or a tensor that is read from a checkpoint in safetensors. A loss for
every token is weighted by what the token is: only completions are learned. ``README.md`` has the
commands.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import sambaflow.samba as samba
import sambaflow.samba.utils as utils
import torch
from replicas import mean, part_of, say
from safetensors import safe_open
from safetensors.torch import save_file
from sambaflow.samba.materialize import materialize
from sambaflow.samba.nn.parameter import SambaParameter
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta_dict
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from samba_onnx.data_prep import HDF5Dataset

COMPLETION, SEPARATOR = 1, 3
"""Types of the tokens that are learned, in ``token_type_ids``."""

Source = Callable[[str, samba.SambaTensor], Tensor]
"""Returns the values of the parameter of a name, which it is also given."""


class LlamaForTraining(LlamaForCausalLM):  # type: ignore[no-untyped-call]  # made by its metaclass
    """A Llama that returns a loss for every token, and the logits."""

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Map tokens and those that follow them.

        Args:
            input_ids: Tokens (batch, length), of integers.
            labels: The tokens that follow, (batch, length).

        Returns:
            Losses (batch * length,) and logits (batch, length, vocabulary).
        """
        hidden = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
        logits = self.lm_head(hidden)
        criterion = nn.CrossEntropyLoss(reduction="none")
        return criterion(logits.flatten(0, 1), labels.flatten()), logits


def add_common_args(parser: argparse.ArgumentParser) -> None:
    """Add what describes the model, and is the same whenever it is compiled and run."""
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--max-seq-length", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=24)
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--num-kv-heads", type=int, default=2)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument("--checkpoint", type=Path, help="folder with a model to begin with")
    parser.add_argument("--seed", type=int, default=0)


def add_run_args(parser: argparse.ArgumentParser) -> None:
    """Add what only training and inference need."""
    parser.add_argument("--data-dir", type=Path, default=Path("data/sums/hdf5"))
    parser.add_argument("--num-epochs", type=int, default=1)
    parser.add_argument("-lr", "--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup-steps", type=int, default=10)
    parser.add_argument("--save", type=Path, help="folder to write the trained model to")


def get_config(args: argparse.Namespace) -> LlamaConfig:
    """Return the configuration of the checkpoint, or one of the command line's sizes."""
    if args.checkpoint:
        return LlamaConfig.from_pretrained(args.checkpoint)
    return LlamaConfig(
        vocab_size=args.vocab_size,
        hidden_size=args.hidden_size,
        intermediate_size=4 * args.hidden_size,
        num_hidden_layers=args.num_layers,
        num_attention_heads=args.num_heads,
        num_key_value_heads=args.num_kv_heads,
        max_position_embeddings=args.max_seq_length,
        bos_token_id=None,
        eos_token_id=None,
    )


def random_values(seed: int, deviation: float, name: str, parameter: samba.SambaTensor) -> Tensor:
    """Return initial values, the same in whatever order parameters are filled."""
    if parameter.ndim == 1:
        return torch.ones(parameter.shape, dtype=parameter.dtype)
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    values = torch.randn(tuple(parameter.shape), generator=generator)
    return (values * deviation).to(parameter.dtype)


def saved_values(folder: Path, name: str, parameter: samba.SambaTensor) -> Tensor:
    """Return the values that a checkpoint has, in one file or in several with an index."""
    index = folder / "model.safetensors.index.json"
    file = "model.safetensors"
    if index.exists():
        file = json.loads(index.read_text(encoding="utf-8"))["weight_map"][name]
    with safe_open(folder / file, framework="pt") as tensors:
        values: Tensor = tensors.get_tensor(name)
    return values.to(parameter.dtype)


def make_model(args: argparse.Namespace) -> LlamaForTraining:
    """Make a model whose parameters take no memory until they are sent to the RDU."""
    config = get_config(args)
    with torch.device("meta"):
        model = LlamaForTraining(config)
    # Its tables are computed, not loaded.
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    source: Source = partial(random_values, args.seed, config.initializer_range)
    if args.checkpoint:
        source = partial(saved_values, args.checkpoint)
    for name, parameter in list(model.named_parameters()):
        owner, _, key = name.rpartition(".")
        lazy = SambaParameter(
            shape=parameter.shape, dtype=torch.float32, materializer=partial(source, name)
        )
        setattr(model.get_submodule(owner), key, lazy)
    model.train(not args.inference)
    samba.from_torch_model_(model)
    return model


def make_optimizers(args: argparse.Namespace, model: nn.Module) -> list[torch.optim.Optimizer]:
    """Return an optimizer of the matrices, and one of what has no weight decay."""
    groups: tuple[list[Tensor], list[Tensor]] = ([], [])
    for parameter in model.parameters():
        groups[parameter.ndim == 1].append(parameter)
    return [
        samba.optim.AdamW(
            group,
            lr=0.0,
            betas=(0.9, 0.95),
            eps=1e-8,
            weight_decay=decay,
            max_grad_norm=args.max_grad_norm,
        )
        for group, decay in zip(groups, (args.weight_decay, 0.0), strict=True)
    ]


def get_inputs(args: argparse.Namespace) -> dict[str, samba.SambaTensor]:
    """Return inputs of the shapes and names that the real ones will have."""
    size = (args.batch_size, args.max_seq_length)
    return {
        name: samba.from_torch(torch.zeros(size, dtype=torch.int32), name=name)
        for name in ("input_ids", "labels")
    }


def batches(
    args: argparse.Namespace, part: str, epoch: int = 0
) -> Iterator[tuple[dict[str, samba.SambaTensor], Tensor]]:
    """Yield named inputs, and what the token after each counts for, (batch * length,)."""
    dataset: Any = HDF5Dataset(args.data_dir, part, in_memory=True)
    own = part_of(dataset, args.seed + epoch) if part == "train" else None
    loader: DataLoader[Any] = DataLoader(
        dataset,
        args.batch_size,
        shuffle=part == "train" and own is None,
        sampler=own,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed + epoch),
    )
    for batch in loader:
        following = batch["token_type_ids"].roll(-1, 1)
        following[:, -1] = -1  # it is in the next sequence
        counts = (following == COMPLETION) | (following == SEPARATOR)
        tensors = {"input_ids": batch["input_ids"], "labels": batch["input_ids"].roll(-1, 1)}
        inputs = {name: samba.from_torch(tensor, name=name) for name, tensor in tensors.items()}
        yield inputs, (counts / counts.sum()).flatten()


def learning_rate(args: argparse.Namespace, step: int, steps: int) -> float:
    """Return the rate of a step: it rises, and falls to a tenth along a cosine."""
    if step < args.warmup_steps:
        return float(args.learning_rate * (step + 1) / args.warmup_steps)
    share = (step - args.warmup_steps) / max(1, steps - args.warmup_steps)
    return float(args.learning_rate * (0.55 + 0.45 * math.cos(math.pi * share)))


def train(args: argparse.Namespace, model: LlamaForTraining) -> None:
    """Train on the RDU."""
    outputs: Any = model.output_tensors
    lengths = len(HDF5Dataset(args.data_dir)) // utils.get_world_size() // args.batch_size
    for epoch in range(args.num_epochs):
        total = 0.0
        for number, (inputs, weights) in enumerate(batches(args, "train", epoch)):
            step = epoch * lengths + number
            rate = learning_rate(args, step, args.num_epochs * lengths)
            outputs[0].sn_grad = weights
            (losses,) = samba.session.run(
                inputs,
                outputs[0],
                hyperparam_dict={"lr": rate},
                data_parallel=args.data_parallel,
                reduce_on_rdu=args.reduce_on_rdu,
            )
            total += (samba.to_torch(losses) * weights).sum().item()
        say(f"Epoch {epoch + 1}: loss {mean(total / lengths):.6f}")
    if args.save:
        save(args.save, model)


def save(folder: Path, model: LlamaForTraining) -> None:
    """Write the model, as the RDU has it, into a folder that transformers can load."""
    samba.session.to_cpu(model)
    if not utils.is_main_process():
        return
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    tensors = {
        name: samba.to_torch(parameter).detach() for name, parameter in model.named_parameters()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def evaluate(args: argparse.Namespace, model: LlamaForTraining) -> None:
    """Print the loss of completions that were held out, and how many of their tokens are right."""
    total, correct, count = 0.0, 0, 0
    runs = 0
    for inputs, weights in batches(args, "dev"):
        losses, logits = samba.session.run(inputs, model.output_tensors, section_types=["fwd"])
        right = samba.to_torch(logits).argmax(-1) == samba.to_torch(inputs["labels"])
        total += (samba.to_torch(losses) * weights).sum().item()
        correct += int((right.flatten() & (weights > 0)).sum())
        count += int((weights > 0).sum())
        runs += 1
    print(f"Held out: loss {total / runs:.6f}, accuracy {correct / count:.4f}")


def test(args: argparse.Namespace, model: LlamaForTraining) -> None:
    """Compare a forward and a backward pass on the RDU with those of the host."""
    outputs: Any = model.output_tensors
    inputs = get_inputs(args)
    for tensor in inputs.values():
        samba.to_torch(tensor).random_(args.vocab_size)
    weights = torch.full((args.batch_size * args.max_seq_length,), 1 / args.max_seq_length)
    outputs[0].sn_grad = weights
    computed = samba.session.run(inputs, outputs, section_types=["fwd", "bckwd"])
    with materialize(model):
        expected = model(**inputs)
        expected[0].backward(weights)
    for name, one, other in zip(("loss", "logits"), expected, computed, strict=True):
        utils.assert_close(one, other, name)
    parameters: dict[str, samba.SambaTensor] = dict(model.named_parameters())
    for name, parameter in parameters.items():
        utils.assert_close(parameter.grad, parameter.sn_grad, f"{name}.grad")
    print("RDU and CPU agree")


def main() -> None:
    """Do what the command line says."""
    args = parse_app_args(common_parser_fn=add_common_args, run_parser_fn=add_run_args)
    utils.set_seed(args.seed)
    model = make_model(args)
    inputs = get_inputs(args)
    optimizers = None if args.inference else make_optimizers(args, model)
    if args.command == "compile":
        samba.session.compile(
            model,
            inputs,
            optimizers,
            name="llama",
            config_dict=vars(args),
            pef_metadata=get_pefmeta_dict({"max_seq_length": args.max_seq_length}, model),
        )
        return
    utils.trace_graph(model, inputs, optimizers, pef=args.pef, loss_indices=[0])
    if args.command == "test":
        test(args, model)
    elif args.command == "run":
        (evaluate if args.inference else train)(args, model)


if __name__ == "__main__":
    main()
