"""One compilation of ``benchmarks scale``: ``python -m benchmarks.scale_worker ROW LAYERS LEVEL``.

Prints the seconds of CPU and of the clock from the configuration to the plan, imports not counted, the peak of
resident memory in bytes, and the number of sections.
"""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from types import MappingProxyType

import torch

from benchmarks.fidelity_programs import planned
from benchmarks.published import PublishedRow, published_row


def with_layers(row: PublishedRow, layers: int) -> PublishedRow:
    """Return a row whose program has another number of layers.

    Args:
        row: Of GPT-2, BERT or a Llama.
        layers: How many.
    """
    name = "layers" if "layers" in row.sizes else "num_hidden_layers"
    return dataclasses.replace(row, sizes=MappingProxyType({**row.sizes, name: layers}))


def main() -> None:
    """Compile what the command line says."""
    name, layers, level = sys.argv[1:]
    torch.set_num_threads(1)
    row = with_layers(published_row(name), int(layers))
    planned(with_layers(row, 1), level=level)  # what is imported on the way
    cpu_begin, begin = time.process_time(), time.perf_counter()
    manifest = planned(row, level=level).manifest
    cpu_seconds, seconds = time.process_time() - cpu_begin, time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(cpu_seconds, seconds, peak, len(manifest.sections))


if __name__ == "__main__":
    main()
