"""Generate text with a Llama whose keys, values and tokens stay on the RDU.

Three graphs are compiled into one PEF. ``prefill`` reads whole prompts and fills the cache,
``decode`` reads one token of every sequence and adds a row, and ``sample`` chooses tokens from the
logits that either left, greedily at temperature 0. They meet in regions of device memory, so that
only random numbers and tokens move. The run reads the sizes from the PEF::

    python cached_generation.py compile --inference -b 2 --pef-name llama --max-prompt 8
    python cached_generation.py run --inference --pef out/llama/llama.pef \
        --prompts "5 7 9" "3 1 4 1 5" --max-new-tokens 12 --temperature 0.8

(``generate.py`` is the same task in other words.)
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import sambaflow.samba as samba
import torch
from sambaflow.samba import utils
from sambaflow.samba.argconf.args import CompileArgs, RunArgs
from sambaflow.samba.graph import FwdGraph
from sambaflow.samba.sn_private import sn_gather, sn_multinomial, sn_scatter
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import PefInfoStruct, get_pef_info, get_pefmeta_dict
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

KeysAndValues = tuple[tuple[Tensor, Tensor], ...]

SIZES = ("batch_size", "max_prompt", "max_length", "vocab_size", "hidden_size", "num_layers")
"""What the run reads from the PEF."""


def add_compile_arguments(parser: ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--max-prompt", type=int, default=8, help="most tokens of a prompt")
    parser.add_argument("--max-length", type=int, default=32, help="most tokens of a text")
    parser.add_argument("--vocab-size", type=int, default=64)
    parser.add_argument("--hidden-size", type=int, default=32)
    parser.add_argument("--num-layers", type=int, default=2)


def add_run_arguments(parser: ArgumentParser) -> None:
    """Add what the run is told."""
    parser.add_argument("--prompts", nargs="+", default=["1 2 3"], help="numbers of tokens")
    parser.add_argument("--max-new-tokens", type=int, default=8)
    parser.add_argument("--end", type=int, help="the token that ends a text")
    parser.add_argument("--temperature", type=float, default=0.0)


def add_arguments(parser: ArgumentParser) -> None:
    """Add what both need."""
    parser.add_argument("--checkpoint", help="a folder of save_pretrained, instead of the sizes")
    parser.add_argument("--seed", type=int, default=0)


class DeviceCache:
    """Keys and values of all layers, as the attention of transformers asks for them."""

    def __init__(self, past: KeysAndValues | None, rows: int, position: Tensor) -> None:
        self.past = past
        self.rows = rows
        self.position = position
        self.present: list[Tensor] = []

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep what a layer computed, (batch, heads, tokens, width); return what it attends to."""
        if self.past is None:
            behind = (0, 0, 0, self.rows - keys.size(2))
            self.present += [nn.functional.pad(keys, behind), nn.functional.pad(values, behind)]
            return keys, values
        kept = [
            # One row of every sequence, at its own place.
            sn_scatter(old, new.unsqueeze(1), self.position.unsqueeze(-1), [1], batched_dims=1)
            for old, new in zip(self.past[layer], (keys, values), strict=True)
        ]
        self.present += kept
        return kept[0], kept[1]


class CachedLlama(nn.Module):
    """A Llama that is given its cache, and returns it."""

    def __init__(self, llama: LlamaForCausalLM, max_length: int) -> None:
        super().__init__()
        self.llama = llama
        self.max_length = max_length

    def forward(
        self,
        input_ids: Tensor,
        position: Tensor,
        past_key_values: KeysAndValues | None = None,
        use_cache: bool = True,
    ) -> tuple[Tensor, ...]:
        """Read tokens.

        Args:
            input_ids: Prompts (batch, max_prompt), or tokens (batch, 1) with a cache.
            position: Place of the last token of each, (batch, 1).
            past_key_values: The cache.
            use_cache: Whether to return it.

        Returns:
            Logits (batch, vocabulary), and keys and values of every layer.
        """
        batch, length = input_ids.shape
        if past_key_values is None:
            places = torch.arange(length).unsqueeze(0).repeat(batch, 1)
            rows = torch.arange(length)
        else:
            places, rows = position, torch.arange(self.max_length)
        cache = DeviceCache(past_key_values, self.max_length, position)
        hidden = self.llama.model(
            input_ids=input_ids,
            position_ids=places,
            attention_mask=(rows <= places.unsqueeze(-1)).unsqueeze(1),
            past_key_values=cache,
            use_cache=use_cache,
        ).last_hidden_state
        if past_key_values is None:
            hidden = sn_gather(hidden, position.unsqueeze(-1), [0], [1], batched_dims=1).squeeze(2)
        logits = self.llama.lm_head(hidden).squeeze(1)
        return logits, *cache.present


class Sampling(nn.Module):
    """Chooses tokens, and counts."""

    def forward(
        self, logits: Tensor, temperature: Tensor, randoms: Tensor, position: Tensor
    ) -> dict[str, Tensor]:
        """Return a token of every sequence and its place, both (batch, 1)."""
        probabilities = (logits / temperature.clamp(min=1e-6)).softmax(-1)
        drawn = sn_multinomial(probabilities, randoms).unsqueeze(-1)
        best = logits.argmax(-1, keepdim=True)
        return {"token": torch.where(temperature > 0, drawn, best), "position": position + 1}


def make_model(args: Namespace) -> CachedLlama:
    """Make the model on the host, from a checkpoint or with random weights."""
    if args.checkpoint:
        llama = LlamaForCausalLM.from_pretrained(args.checkpoint)
    else:
        llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=args.vocab_size,
                hidden_size=args.hidden_size,
                intermediate_size=2 * args.hidden_size,
                num_hidden_layers=args.num_layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=args.max_length,
                initializer_range=0.3,
            )
        )
    return CachedLlama(llama, args.max_length).eval()


class Graphs:
    """The three graphs, traced, with the regions in which they meet."""

    def __init__(self, args: Namespace, model: CachedLlama) -> None:
        config = model.llama.config
        heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        shape = (args.batch_size, heads, args.max_length, width)
        names = [
            (f"past_key_{layer}", f"past_value_{layer}")
            for layer in range(config.num_hidden_layers)
        ]
        past = tuple(
            tuple(samba.SambaTensor(shape=shape, dtype=torch.float32, name=name) for name in pair)
            for pair in names
        )
        regions = ["logits", *(name for pair in names for name in pair)]
        column = [args.batch_size, 1]
        place = samba.zeros(column, dtype=torch.int64, name="position")
        self.prefill = self._add(
            "prefill",
            model,
            {
                "input_ids": samba.randint(
                    config.vocab_size, (args.batch_size, args.max_prompt), name="prompts"
                ),
                "position": place,
                "past_key_values": None,
                "use_cache": True,
            },
            regions,
        )
        self.decode = self._add(
            "decode",
            model,
            {
                "input_ids": samba.zeros(column, dtype=torch.int64, name="token"),
                "position": place,
                "past_key_values": past,
                "use_cache": True,
            },
            regions,
        )
        self.sample = self._add(
            "sample",
            Sampling().eval(),
            {
                "logits": samba.randn(args.batch_size, config.vocab_size, name="logits"),
                "temperature": samba.rand(
                    column, dtype=torch.float, name="temperature", sized_dims=[None, None]
                ),
                "randoms": samba.rand(column, dtype=torch.float, name="randoms"),
                "position": place,
            },
            ["token", "position"],
        )

    def _add(
        self, name: str, model: nn.Module, inputs: dict[str, Any], regions: Sequence[str]
    ) -> tuple[samba.SambaTensor, ...]:
        """Trace a graph, and put its outputs into regions."""
        outputs: tuple[samba.SambaTensor, ...] = utils.trace_multigraph(model, inputs)
        for output, region in zip(outputs, regions, strict=True):
            output.sn_region_name = region
        samba.session.add_graph(FwdGraph(inputs, outputs, name=name))
        return outputs


def run_graph(
    name: str, inputs: Mapping[str, Tensor], outputs: Sequence[samba.SambaTensor] = ()
) -> tuple[samba.SambaTensor, ...]:
    """Run one of the graphs; inputs that are not given are where another graph left them."""
    fetched: tuple[samba.SambaTensor, ...] = samba.session.run(
        samba.from_named_dict(inputs), outputs, graph_name=name
    )
    return fetched


def generate(args: Namespace, graphs: Graphs) -> None:
    """Print every prompt with what follows it."""
    prompts = [[int(word) for word in prompt.split()] for prompt in args.prompts]
    padded = torch.zeros(args.batch_size, args.max_prompt, dtype=torch.int64)
    for row, prompt in zip(padded, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    last = torch.tensor([[len(prompt) - 1] for prompt in prompts])
    random = torch.Generator().manual_seed(args.seed)
    temperature = torch.full((args.batch_size, 1), args.temperature)
    texts = [list(prompt) for prompt in prompts]
    ended = [False] * len(texts)
    for step in range(args.max_new_tokens):
        if step == 0:
            run_graph("prefill", {"prompts": padded, "position": last})
        else:
            run_graph("decode", {})
        numbers = {"randoms": torch.rand(args.batch_size, 1, generator=random)}
        if step == 0:
            numbers["temperature"] = temperature
        (tokens,) = run_graph("sample", numbers, graphs.sample[:1])
        for index, token in enumerate(samba.to_torch(tokens).flatten().tolist()):
            if not ended[index]:
                texts[index].append(token)
                ended[index] = token == args.end
        if all(ended):
            break
    for text in texts:
        print(*text)


def main(argv: Sequence[str]) -> None:
    """Do what a command line says."""
    args = parse_app_args(
        argv=argv,
        common_parser_fn=add_arguments,
        compile_parser_fn=add_compile_arguments,
        run_parser_fn=add_run_arguments,
    )
    compiling = args.command == "compile"
    samba.session.setup((CompileArgs if compiling else RunArgs)(**vars(args)))
    if not compiling:
        fields = {name: PefInfoStruct(0) for name in SIZES}
        vars(args).update(get_pef_info(args.pef, fields))
    utils.set_seed(args.seed)
    model = make_model(args)
    samba.from_torch_model_(model)
    graphs = Graphs(args, model)
    if compiling:
        path = samba.session.compile_multigraph(
            name="llama",
            config_dict=vars(args),
            pef_metadata=get_pefmeta_dict({name: getattr(args, name) for name in SIZES}, model),
            enable_hypersection=True,
            inference=True,
        )
        print(path)
        return
    samba.session.init_multigraph_runtime(args.pef)
    generate(args, graphs)


if __name__ == "__main__":
    main(sys.argv[1:])
