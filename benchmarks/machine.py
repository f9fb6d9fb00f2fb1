"""What this machine can do at most: its processor's name, products of matrices and memory per second.

``python -m benchmarks.machine THREADS`` prints the two rates, measured in a process of that many threads. On one thread time is
CPU time, as in the benchmarks, else wall time.
"""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_WIDTH = 1024
_COPIED = 1 << 28
"""Bytes: more than caches hold."""
_TURNS = 7
_EXTENSIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_tile", "asimd", "sve")


@dataclass(frozen=True)
class Machine:
    """What a number of threads reach, each the best of some turns."""

    flops: float
    """Operations per second of a product of square matrices of float32."""
    bandwidth: float
    """Bytes per second, read and written, of a copy."""


@dataclass(frozen=True)
class Work:
    """What has to be computed and moved, whoever does it."""

    flops: float
    bytes: float

    def seconds(self, machine: Machine) -> float:
        """Return the least time in which a machine can do it, both at once."""
        return max(self.flops / machine.flops, self.bytes / machine.bandwidth)


@functools.cache
def machine(threads: int) -> Machine:
    """Return what threads reach here, measured once in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.machine", str(threads)]
    return Machine(**json.loads(subprocess.check_output(command, text=True)))


def processor() -> str:
    """Return the name of the processor, with the vector instructions that matter to products."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {key.strip(): value.strip() for key, value in values.items()}
    present = set(fields.get("flags", fields.get("Features", "")).split())
    name = fields.get("model name", platform.machine())
    family = [fields[key] for key in ("cpu family", "model") if key in fields]
    numbers = f" (family {family[0]}, model {family[1]})" if len(family) == 2 else ""
    return f"{name}{numbers}, {' '.join(e for e in _EXTENSIONS if e in present)}"


def main() -> None:
    """Measure, and print the fields of a ``Machine``."""
    import torch

    threads = int(sys.argv[1])
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    left, right = torch.randn(_WIDTH, _WIDTH), torch.randn(_WIDTH, _WIDTH)
    product = torch.empty(_WIDTH, _WIDTH)
    source = torch.zeros(_COPIED // 4)
    copy = torch.empty_like(source)
    multiplied = _best(lambda: torch.mm(left, right, out=product), clock)
    copied = _best(lambda: copy.copy_(source), clock)
    print(json.dumps({"flops": 2 * _WIDTH**3 / multiplied, "bandwidth": 2 * _COPIED / copied}))


def _best(step: Callable[[], object], clock: Callable[[], float]) -> float:
    def seconds() -> float:
        begin = clock()
        step()
        return clock() - begin

    step()
    return min(seconds() for _ in range(_TURNS))


if __name__ == "__main__":
    main()
