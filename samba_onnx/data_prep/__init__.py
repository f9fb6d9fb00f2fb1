"""Text is prepared for training: tokenized, packed into sequences of one length, written as HDF5.

``pipeline`` makes a folder of an input, with files to train on, to evaluate and to test;
``data_prep`` makes one HDF5 file of one file of text; ``HDF5Dataset`` reads what they have written.
What they make equals what SambaNova's public data preparation makes of the same input, token for
token. On the command line it is ``samba-port data-prep``, or ``python -m samba_onnx.data_prep``.

Libraries that ``samba-onnx[data]`` installs are loaded on first use.
"""

from __future__ import annotations

from samba_onnx.tools.data_prep.dataset import HDF5Dataset
from samba_onnx.tools.data_prep.decoding import decode
from samba_onnx.tools.data_prep.metrics import Metrics
from samba_onnx.tools.data_prep.preparation_options import (
    DatasetOptions,
    EngineKind,
    PackingConfig,
    PreparationOptions,
    Shuffle,
    SplitOptions,
    UnitBoundary,
)
from samba_onnx.tools.data_prep.reporting import Reporter
from samba_onnx.tools.data_prep.runs import DatasetResult, pipeline
from samba_onnx.tools.data_prep.single_file import SingleFileResult, data_prep
from samba_onnx.tools.data_prep.token_types import TokenType
from samba_onnx.tools.data_prep.tokenizer_record import load_tokenizer

__all__ = [
    "DatasetOptions",
    "DatasetResult",
    "EngineKind",
    "HDF5Dataset",
    "Metrics",
    "PackingConfig",
    "PreparationOptions",
    "Reporter",
    "Shuffle",
    "SingleFileResult",
    "SplitOptions",
    "TokenType",
    "UnitBoundary",
    "data_prep",
    "decode",
    "load_tokenizer",
    "pipeline",
]
