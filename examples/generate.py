"""Compile a language model, and generate text with its cache on the device.

The two halves run in processes of their own::

    python -m examples.generate compile out/llama.pef
    python -m examples.generate run out/llama.pef --prompt 5 7 9 --count 20

Without ``--checkpoint``, the model is a small Llama with random weights that are always the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import samba_onnx as samba
from models.generation import Generator, Sizes


def language_model(checkpoint: str | None = None) -> PreTrainedModel:
    """Return a model of transformers.

    Args:
        checkpoint: A folder that ``save_pretrained`` wrote.
    """
    if checkpoint is not None:  # which transformers returns in evaluation mode
        loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            checkpoint, use_safetensors=True
        )
        return loaded
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    model.eval()  # type: ignore[no-untyped-call]  # transformers annotates little
    return model


def main(argv: Sequence[str] | None = None) -> None:
    """Do what a command line says.

    Args:
        argv: The command line, without the program; that of the process when None.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("compile", "run"))
    parser.add_argument("pef", help="the compiled program")
    parser.add_argument("--checkpoint", help="a folder with a language model")
    parser.add_argument("--greedy", action="store_true", help="choose tokens on the device")
    parser.add_argument("--prompt", type=int, nargs="+", default=[5, 7, 9], help="token ids")
    parser.add_argument("--count", type=int, default=20, help="tokens to generate")
    args = parser.parse_args(argv)
    generator = Generator(language_model(args.checkpoint), Sizes(), greedy=args.greedy)
    if args.command == "compile":
        print(generator.compile(args.pef))
        return
    generator.load(args.pef)
    samba.session.transfers.reset()
    (tokens,) = generator.generate([args.prompt], args.count)
    print(*tokens)
    for total in samba.session.transfers.totals():
        print(f"{total.cause} {total.direction}: {total.count} copies, {total.bytes} bytes")


if __name__ == "__main__":
    main()
