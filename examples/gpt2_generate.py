"""Let ``generate`` of transformers compute the logits of GPT-2 on an RDU.

The program has a fixed length: prompts with what was generated so far are padded to it. Compile
without gradients, and give a checkpoint to the run::

    python gpt2_generate.py compile --inference -b 2 --pef-name generate
    python gpt2_generate.py run --inference -b 2 --pef out/generate/generate.pef \
        --checkpoint tuned.pt --tokenizer data/sums/tokenizer \
        --prompts "four plus five is" "one plus two is"

``generate`` does everything else, as on any other machine: greedy choice, sampling, beams.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

import sambaflow.samba as samba
import torch
from gpt2_model import add_model_arguments, load_checkpoint, make_model, patch_model
from sambaflow.samba import utils
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta
from torch import Tensor
from torch.nn.functional import pad
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions


def add_run_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    parser.add_argument("--tokenizer", help="its folder; prompts are numbers of tokens without")
    parser.add_argument("--prompts", nargs="+", default=["4 5 6", "7 8"])
    parser.add_argument("--max-new-tokens", type=int, default=4)
    parser.add_argument("--num-beams", type=int, default=1)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--temperature", type=float, default=1.0)


class RduGPT2(GPT2LMHeadModel):  # type: ignore[no-untyped-call]
    """GPT-2 as it is traced: logits of all tokens, and nothing else."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Tensor:
        """Return logits (batch, length, vocabulary)."""
        hidden = self.transformer(
            input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        logits: Tensor = self.lm_head(hidden)
        return logits


def trace_inputs(args: Namespace) -> tuple[samba.SambaTensor, ...]:
    """Return what the model is traced with."""
    size = (args.batch_size, args.max_seq_length)
    return (
        samba.randint(args.vocab_size, size, name="input_ids", batch_dim=0),
        samba.ones(size, dtype=torch.int64, name="attention_mask", batch_dim=0),
        samba.zeros(size, dtype=torch.int64, name="position_ids", batch_dim=0),
    )


def rdu_call(
    self: RduGPT2,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    **kwargs: Any,
) -> CausalLMOutputWithCrossAttentions:
    """Take the place of ``__call__``: pad, run on the RDU, and take the logits of what was given."""
    length = input_ids.shape[1]
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    if position_ids is None:
        position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    given = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "position_ids": position_ids.expand_as(input_ids),
    }
    behind = (0, self.config.n_positions - length)
    inputs = [samba.from_torch_tensor(pad(t, behind), name=name) for name, t in given.items()]
    (logits,) = samba.session.run(
        input_tensors=inputs,
        output_tensors=self.output_tensors,
        hyperparam_dict={"p": 0.0},
        section_types=["fwd"],
    )
    return CausalLMOutputWithCrossAttentions(logits=samba.to_torch(logits)[:, :length])


def encode(args: Namespace, tokenizer: PreTrainedTokenizerFast | None) -> dict[str, Any]:
    """Return prompts as tokens, with padding before those that are shorter, and the mask of it."""
    if tokenizer is not None:
        tokenizer.padding_side = "left"
        encoded = tokenizer(args.prompts, padding=True, return_tensors="pt")
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}
    prompts = [[int(word) for word in prompt.split()] for prompt in args.prompts]
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return {"input_ids": ids, "attention_mask": mask}


def generate(args: Namespace, model: RduGPT2) -> None:
    """Print every prompt with what follows it."""
    tokenizer = None
    if args.tokenizer:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(args.tokenizer)
    encoded = encode(args, tokenizer)
    set_seed(args.seed)
    generated: Any = model.generate(  # type: ignore[misc]
        **encoded,
        max_new_tokens=args.max_new_tokens,
        num_beams=args.num_beams,
        do_sample=args.sample,
        temperature=args.temperature,
        pad_token_id=tokenizer.pad_token_id if tokenizer else 0,
        eos_token_id=tokenizer.eos_token_id if tokenizer else None,
        use_cache=False,
    )
    for tokens in generated.tolist():
        print(tokenizer.decode(tokens, skip_special_tokens=True) if tokenizer else tokens)


def main(argv: Sequence[str]) -> None:
    """Do what a command line says."""
    args = parse_app_args(
        argv=argv, common_parser_fn=add_model_arguments, run_parser_fn=add_run_arguments
    )
    utils.set_seed(args.seed)
    model = make_model(RduGPT2, args).train(False)
    patch_model(model)
    samba.from_torch_model_(model)
    inputs = trace_inputs(args)
    if args.command == "compile":
        samba.session.compile(model, inputs, pef_metadata=get_pefmeta(args, model))
        return
    utils.trace_graph(model, inputs, pef=args.pef)
    if args.checkpoint:
        load_checkpoint(model, args.checkpoint)
        samba.session.to_rdu(model)
    RduGPT2.__call__ = rdu_call  # type: ignore[method-assign]
    generate(args, model)


if __name__ == "__main__":
    main(sys.argv[1:])
