"""``sambaflow.samba.utils``: what programs are built from around the session."""

from typing import Never

from samba_onnx.sambaflow.samba.utils import (
    argparser,
    benchmark_acc,
    checkpoint,
    common,
    dataset,
    numeric,
    pef_utils,
    tensorboard_debug,
    trainer,
    utils,
)
from samba_onnx.sambaflow.samba.utils.common import compile
from samba_onnx.sambaflow.samba.utils.utils import *  # noqa: F403  the names are listed there, once
from samba_onnx.sambaflow.symbols import absent

__all__ = [  # noqa: PLE0604
    "argparser",
    "benchmark_acc",
    "checkpoint",
    "common",
    "compile",
    "dataset",
    "numeric",
    "pef_utils",
    "tensorboard_debug",
    "trainer",
    "utils",
    *utils.__all__,
]


def __getattr__(name: str) -> Never:
    """Say of a name that is not here what to do without it."""
    raise absent("sambaflow.samba.utils", name)
