"""The command ``python -m models``: write a model, name them all, or fill their cache."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypedDict, get_args

from models import MODELS, find
from models.cache import cached_onnx
from models.example import Variant
from samba_onnx.errors import UsageError

__all__ = ["main"]


class _Form(TypedDict, total=False):
    dynamic: bool
    raw: bool


FURTHER: Mapping[str, _Form] = MappingProxyType(
    {
        "bert": {"raw": True},
        "lenet": {"raw": True},
        "mlp": {"raw": True},
        "lstm": {"dynamic": True},
    }
)
"""What the fast tests read of tiny models besides: each on its own would load torch anew."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m models",
        description="Build an architecture with seeded random weights and export it to ONNX.",
        epilog="example: python -m models resnet50 resnet50.onnx --variant tiny",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the model; see --list")
    parser.add_argument("output", nargs="?", metavar="OUT.onnx", help="the file to write")
    parser.add_argument(
        "--variant", choices=get_args(Variant), default="full", help="the size (default: full)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    parser.add_argument("--dynamic", action="store_true", help="name the dynamic dimensions")
    parser.add_argument("--raw", action="store_true", help="leave the graph as it was traced")
    parser.add_argument(
        "--traced", action="store_true", help="export with TorchScript, as older files were made"
    )
    parser.add_argument(
        "--cache", action="store_true", help="export all models of the variant into the cache"
    )
    parser.add_argument("--list", action="store_true", help="list the models and their variants")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program's name; ``sys.argv`` when None.

    Returns:
        The exit code: 0, or 2 for bad usage.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for builder in MODELS.values():
            print(f"{builder.name:20} {', '.join(builder.variants):18} {builder.title}")
        return 0
    if options.cache:
        _fill(options.variant)
        return 0
    if options.name is None or options.output is None:
        parser.error("give NAME and OUT.onnx, or --list")
    try:
        find(options.name).check(options.variant)
    except UsageError as error:
        parser.error(str(error))

    import torch

    from models.export import export_onnx
    from models.torchscript import export_traced

    torch.set_num_threads(1)  # calibrated statistics then do not depend on the number of cores
    export = export_traced if options.traced else export_onnx
    export(
        options.name,
        options.variant,
        options.output,
        seed=options.seed,
        dynamic=options.dynamic,
        optimize=not options.raw,
    )
    return 0


def _fill(variant: Variant) -> None:
    """Export what the cache lacks in one process, which loads torch only once."""
    import torch

    torch.set_num_threads(1)
    for builder in MODELS.values():
        if variant in builder.variants:
            print(cached_onnx(builder.name, variant, here=True))
    if variant == "tiny":
        for name, options in FURTHER.items():
            print(cached_onnx(name, variant, here=True, **options))


if __name__ == "__main__":
    sys.exit(main())
