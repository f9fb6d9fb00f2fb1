"""One device and many threads: everybody gets what he would get alone, and keeps it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from samba_onnx.errors import DeviceError
from samba_onnx.pef.manifest import Argin
from samba_onnx.program.kinds import SectionType, SymbolKind
from samba_onnx.runtime.device import Device
from samba_onnx.runtime.ledger import totals
from tests.runtime.building import WEIGHT, Plan, build, fallback, section

RNG = np.random.default_rng(0)
THREADS = 6
X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def hasty_threads() -> Iterator[None]:
    """Let Python switch threads as often as it can, so that every gap is found."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def small() -> Plan:
    return Plan(
        [section("s (float[4] x, float k) => (float[4] y, float[4] z) { y=Mul(x,k) z=Add(y,x) }")],
        ["x", "k"],
        ["y", "z"],
        argins=[Argin("k", "tensor(float)", 1.0, (0,))],
    )


def mixed() -> Plan:
    """Section, fallback, section: values pass through the host in the middle of a run."""
    return Plan(
        [
            section("s (float[4] x) => (float[4] a) { a = Neg(x) }"),
            fallback("c (float[4] a) => (float[4] b) { b = Add(a, a) }"),
            section("s (float[4] b) => (float[4] y) { y = Neg(b) }"),
        ],
        ["x"],
        ["y"],
    )


def large() -> Plan:
    return Plan(
        [
            section(
                "s (float[128,256] x, float[256,256] weight) => (float[128,256] a) "
                "{ a = MatMul(x, weight) }"
            ),
            section(
                "s (float[128,256] a, float[256,256] weight) => (float[128,256] y) "
                "{ b = MatMul(a, weight) y = Tanh(b) }",
                type=SectionType.BCKWD,
            ),
        ],
        ["x"],
        ["y"],
        load=[("weight", WEIGHT)],
        kinds={"weight": SymbolKind.WEIGHT},
    )


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Call ``work`` with 0, 1, ... at once; raise what the first of them raised."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def call(number: int) -> None:
        try:
            start.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def forever(work: Callable[[], Any]) -> NoReturn:
    while True:
        work()


def feeds(shape: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{"x": RNG.standard_normal(shape).astype(np.float32)} for _ in range(THREADS)]


@pytest.mark.parametrize(
    ("plan", "shape", "runs"),
    [(small, (4,), 300), (mixed, (4,), 60), (large, (128, 256), 12)],
    ids=["small", "mixed", "large"],
)
def test_every_thread_gets_its_own_results_and_keeps_them(
    tmp_path: Path, plan: Callable[[], Plan], shape: tuple[int, ...], runs: int
) -> None:
    given = feeds(shape)
    with build(tmp_path, plan()) as pef, Device(pef, threads=1) as device:
        if plan is large:
            device.load({"weight": RNG.standard_normal((256, 256)).astype(np.float32)})
        alone = [device.run(feed) for feed in given]
        for (number, expected), kept in zip(
            enumerate(alone),
            in_threads(lambda number: [device.run(given[number]) for _ in range(runs)]),
            strict=True,
        ):
            # Compared when all have finished: nobody's results change while others run.
            for result in kept:
                for name, array in result.items():
                    np.testing.assert_array_equal(array, expected[name], f"thread {number}")
        assert device.ledger.runs == THREADS * (runs + 1)


def test_argins_belong_to_the_run_that_sets_them(tmp_path: Path) -> None:
    with build(tmp_path, small()) as pef, Device(pef, threads=1) as device:

        def work(number: int) -> None:
            for _ in range(200):
                result = device.run({"x": X}, argins={"k": number})
                np.testing.assert_array_equal(result["y"], X * number)

        in_threads(work)


def test_parts_of_runs_and_selections(tmp_path: Path) -> None:
    """Several calls of one turn: what the first leaves on the device is there for the second."""
    weight = RNG.standard_normal((256, 256)).astype(np.float32)
    given = feeds((128, 256))
    with build(tmp_path, large()) as pef, Device(pef, threads=1) as device:
        device.load({"weight": weight})

        def parts(number: int) -> np.ndarray[Any, Any]:
            with device.lock.mutex:
                device.run(given[number], section_types=["FWD"])
                return np.asarray(device.run(None, ["y"], section_types=["BCKWD"])["y"])

        alone = [parts(number) for number in range(THREADS)]
        for number, results in enumerate(
            in_threads(lambda number: [parts(number) for _ in range(6)])
        ):
            for result in results:
                np.testing.assert_array_equal(result, alone[number])


def test_reads_and_writes_are_whole(tmp_path: Path) -> None:
    size = 1 << 16
    plan = Plan(
        [section(f"s (float[{size}] x) => (float[{size}] y) {{ y = Neg(x) }}")], ["x"], ["y"]
    )
    with build(tmp_path, plan) as pef, Device(pef, threads=1) as device:

        def work(number: int) -> None:
            value = np.full(size, number, np.float32)
            for turn in range(30):
                if (number + turn) % 2:
                    device.write("x", value)
                else:
                    assert device.run({"x": value})["y"][-1] == -number
                read = device.read("x")
                assert (read == read[0]).all()

        in_threads(work)
        assert len(device.ledger.transfers) == THREADS * 15 * (1 + 1 + 2 + 1)


def test_the_ledger_is_read_while_others_run(tmp_path: Path) -> None:
    runs = 40
    with build(tmp_path, mixed()) as pef, Device(pef, threads=1) as device:
        device.run({"x": X})
        one = len(device.ledger.run())

        def work(number: int) -> None:
            for _ in range(runs):
                if number % 2:
                    device.run({"x": X})
                    continue
                records = device.ledger.transfers
                assert len(records) % one == 0, "part of a run was seen"
                assert sum(total.count for total in device.ledger.totals()) % one == 0
                assert len(device.ledger.run()) == one
                assert len(device.ledger.to_json()["transfers"]) % one == 0

        in_threads(work)
        assert device.ledger.runs == 1 + runs * THREADS // 2
        assert device.ledger.totals() == totals(device.ledger.transfers)


def test_times_of_sections_add_up(tmp_path: Path) -> None:
    with build(tmp_path, mixed()) as pef, Device(pef, threads=1, time_sections=True) as device:
        in_threads(lambda _: [device.run({"x": X}) for _ in range(40)])
        assert [call.executions for call in device.profile.calls("main")] == 3 * [40 * THREADS]


def test_closing_waits_for_who_is_in_and_refuses_the_others(tmp_path: Path) -> None:
    with build(tmp_path, mixed()) as pef:
        device = Device(pef, threads=1)
        ran = threading.Event()

        def work(number: int) -> None:
            if number == 0:
                ran.wait()
                device.close()
                return

            def run() -> None:
                np.testing.assert_array_equal(device.run({"x": X})["y"], 2 * X)
                ran.set()

            with pytest.raises(DeviceError, match="closed"):
                forever(run)

        in_threads(work)


def test_a_turn_may_be_taken_within_a_turn(tmp_path: Path) -> None:
    """``__array__`` of an input runs the device; what it changed is seen by the run around it."""

    class Computed:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            result: np.ndarray[Any, Any] = device.run({"x": X}, argins={"k": 3})["y"]
            return result

    with build(tmp_path, small()) as pef, Device(pef, threads=1) as device:
        for _ in range(3):
            result = device.run({"x": Computed()})
            np.testing.assert_array_equal(result["z"], 3 * 3 * X + 3 * X)


def test_devices_of_their_own_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with build(tmp_path, small()) as pef, Device(pef) as one, Device(pef) as other:
        with one.lock.mutex:
            (result,) = in_threads(lambda _: other.run({"x": X}), count=1)
        np.testing.assert_array_equal(result["y"], X)
