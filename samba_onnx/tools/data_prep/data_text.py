"""What ``samba-port data-prep`` shows: metrics as a table, sequences as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from samba_onnx.report.units import printable
from samba_onnx.tools.data_prep.decoding import DecodedSequence
from samba_onnx.tools.data_prep.metrics import Metrics

_STYLES = {"prompt": "cyan", "completion": "green", "separator": "bold magenta", "padding": "dim"}


def metrics_table(headline: str, metrics: Mapping[str, Metrics]) -> RenderableType:
    """Return metrics as a table with one column for each kind of file.

    Args:
        headline: The answer in one sentence.
        metrics: By kind of file.
    """
    table = Table("", box=None, pad_edge=False, header_style="bold")
    for kind in metrics:
        table.add_column(kind, justify="right")
    columns = [item.rows() for item in metrics.values()]
    for rows in zip(*columns, strict=True):
        table.add_row(rows[0][0], *(figure for _, figure in rows))
    return Group(Text(headline, style="bold"), Text(""), table)


def decoded_text(sequences: Iterable[DecodedSequence]) -> RenderableType:
    """Return sequences with one row for each stretch of one type, in the colour of the type.

    Args:
        sequences: The sequences.
    """
    parts: list[RenderableType] = []
    for sequence in sequences:
        parts.append(Text(f"Sequence {sequence.number}", style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column(justify="right")
        table.add_column(overflow="fold")
        for stretch in sequence.stretches:
            style = _STYLES[stretch.type]
            text = Text(printable(stretch.text), style=style)
            table.add_row(Text(f"  {stretch.type}", style=style), str(stretch.tokens), text)
        parts.append(table)
    return Group(*parts)
