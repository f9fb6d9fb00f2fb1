"""GPT-2 of transformers, as the programs beside this file compile it.

Hubs are not asked for anything: a model is made of a configuration, with random weights or those
of a checkpoint.
"""

from __future__ import annotations

import types
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TypeVar

import sambaflow.samba as samba
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

Model = TypeVar("Model", bound=GPT2LMHeadModel)


def add_model_arguments(parser: ArgumentParser) -> None:
    """Add what determines the model, which every sub-command must agree on."""
    parser.add_argument("--config", help="a config.json of GPT-2, instead of the sizes below")
    parser.add_argument("--vocab-size", type=int, default=24)
    parser.add_argument("--n-embd", type=int, default=64)
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--max-seq-length", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0, help="of the random weights and the data")
    parser.add_argument("--checkpoint", help="weights to begin with")


def make_model(kind: type[Model], args: Namespace) -> Model:
    """Make a model on the host.

    Args:
        kind: Its class.
        args: The arguments that ``add_model_arguments`` adds.
    """
    if args.config:
        config = GPT2Config.from_json_file(args.config)
    else:
        config = GPT2Config(
            vocab_size=args.vocab_size,
            n_embd=args.n_embd,
            n_layer=args.n_layer,
            n_head=args.n_head,
            n_positions=args.max_seq_length,
            resid_pdrop=args.dropout,
            embd_pdrop=args.dropout,
            attn_pdrop=args.dropout,
            bos_token_id=None,
            eos_token_id=None,
        )
    return kind(config)


def transposed(tensor: Tensor) -> samba.SambaParameter:
    """Return a parameter that is filled with a matrix' transpose when it is sent to the RDU."""

    def materialize(parameter: samba.SambaParameter, original: Tensor = tensor) -> Tensor:
        return original.detach().t().contiguous()

    return samba.SambaParameter(
        shape=reversed(tensor.shape), dtype=tensor.dtype, materializer=materialize
    )


def conv1d_forward(self: Conv1D, x: Tensor) -> Tensor:
    """Multiply by a weight that is kept as ``nn.Linear`` keeps it."""
    result: Tensor = samba.addmm(self.bias, x, self.weight, is_transposed=True)
    return result


def patch_model(model: GPT2LMHeadModel) -> None:
    """Let the linear layers of GPT-2, which transformers keeps transposed, be as the RDU wants them.

    To be called before ``samba.from_torch_model_``.
    """
    for module in model.modules():
        if isinstance(module, Conv1D):
            module.weight = transposed(module.weight)
            module.forward = types.MethodType(conv1d_forward, module)  # type: ignore[method-assign]


def _turned(model: GPT2LMHeadModel, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with those of the layers that were patched transposed."""
    patched = {
        f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Conv1D)
    }
    return {
        name: value.t().contiguous() if name in patched else value.clone()
        for name, value in state.items()
    }


def save_checkpoint(model: GPT2LMHeadModel, path: str) -> None:
    """Write the weights as transformers names and keeps them.

    Args:
        model: A patched model, after ``samba.session.to_cpu``.
        path: The file.
    """
    state = {
        name: value.torch_tensor() if isinstance(value, samba.SambaTensor) else value
        for name, value in model.state_dict().items()
    }
    torch.save(_turned(model, state), path)


def load_checkpoint(model: GPT2LMHeadModel, path: str) -> None:
    """Read weights of GPT-2 into a patched model on the host.

    Args:
        model: Where to; ``samba.session.to_rdu`` sends them on if it was traced before.
        path: A file that ``save_checkpoint`` wrote, or any other with weights of this model.
    """
    model.load_state_dict(_turned(model, torch.load(path)))
