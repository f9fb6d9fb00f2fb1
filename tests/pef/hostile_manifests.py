"""Manifests that contradict themselves; each is a change of the toy's manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.pef.forging import Tree

NO_SUCH = "no such"
Change = Callable[[Tree], None]


def _put(value: Any, *path: str | int) -> Change:
    """Return a change that sets one field."""

    def change(tree: Any) -> None:
        for step in path[:-1]:
            tree = tree[step]
        tree[path[-1]] = value

    return change


def _drop(*path: str | int) -> Change:
    """Return a change that removes one field or element."""

    def change(tree: Any) -> None:
        for step in path[:-1]:
            tree = tree[step]
        del tree[path[-1]]

    return change


def _repeat(*path: str | int) -> Change:
    """Return a change that repeats a list's first element at its end."""

    def change(tree: Any) -> None:
        for step in path:
            tree = tree[step]
        tree.append(tree[0])

    return change


def _exchange_calls(tree: Tree) -> None:
    """Make the last call run the first stage and the other way round."""
    calls = tree["graphs"][0]["calls"]
    calls[0]["stage"], calls[2]["stage"] = calls[2]["stage"], calls[0]["stage"]


def _all(*changes: Change) -> Change:
    """Return a change that makes several."""

    def change(tree: Tree) -> None:
        for one in changes:
            one(tree)

    return change


def _add(value: Any, *path: str | int) -> Change:
    """Return a change that appends an element to a list."""

    def change(tree: Any) -> None:
        for step in path:
            tree = tree[step]
        tree.append(value)

    return change


_SYMBOL: Tree = {
    "baked": False,
    "batch_shape": None,
    "bytes": 4800,
    "kind": "weight",
    "name": "resident",
    "region": "work",
    "shape": [4, 300],
    "stored": None,
    "type": "tensor(float)",
}


def _resident(kind: str, region: str = "work") -> Change:
    """Return a change that lets the first section read a value that no stage writes."""
    symbol = {**_SYMBOL, "kind": kind, "region": region}
    return _all(_add(symbol, "symbols"), _put(["x", "resident"], *S, "inputs"))


def _move(symbol: str, cause: str, call: int | None, size: int = 4800) -> Tree:
    return {
        "bytes": size,
        "call": call,
        "cause": cause,
        "direction": "host_to_rdu",
        "seconds": 1e-05,
        "symbol": symbol,
    }


def _fixed(**fields: Any) -> Tree:
    """Return the record of an input that is the constant 16000."""
    record = {"name": "sr", "type": "tensor(int64)", "shape": [], "content": "gD4AAAAAAAA="}
    return {**record, **fields}


def _bound(**fields: Any) -> Tree:
    """Return the record of a dimension of the toy's graph."""
    record = {"assumed": True, "inputs": ["x[0]"], "name": "n", "option": "--dim n=1", "size": 4}
    return {**record, "graph": "main", **fields}


G: tuple[str | int, ...] = ("graphs", 0)
S: tuple[str | int, ...] = ("sections", 0)
F: tuple[str | int, ...] = ("fallbacks", 0)
X, W, B, H = (("symbols", number) for number in range(4))
RUN = (*G, "run_transfers")
LOAD = (*G, "load_transfers")
EDGE = (*G, "boundaries", 0)

CHANGES: dict[str, Change] = {
    # Values of the wrong type or outside their range.
    "level is a number": _put(3, "level"),
    "level is missing": _drop("level"),
    "notes are missing": _drop("notes"),
    "unknown field": _put(1, "unknown"),
    "unknown inner field": _put(1, *S, "unknown"),
    "graphs is an object": _put({}, "graphs"),
    "no graph": _put([], "graphs"),
    "target is null": _put(None, "target"),
    "section type is unknown": _put("SIDEWAYS", *S, "type"),
    "section type in lower case": _put("fwd", *S, "type"),
    "symbol kind is unknown": _put("treasure", *X, "kind"),
    "cause is unknown": _put("whim", *RUN, 0, "cause"),
    "direction is unknown": _put("sideways", *RUN, 0, "direction"),
    "flag is a number": _put(0, *X, "baked"),
    "number is a string": _put("4800", *X, "bytes"),
    "number is a fraction": _put(4800.5, *X, "bytes"),
    "number is a flag": _put(True, *S, "flops"),
    "fraction without a point": _put(1, *RUN, 0, "seconds"),
    "huge number": _put(-(10**400), *S, "flops"),
    "negative flops": _put(-1, *S, "flops"),
    "negative seconds": _put(-1.0, *S, "seconds"),
    "negative region": _put(-1, "regions", 0, "bytes"),
    "negative tier": _put(-1, "target", "tiers", 0, "bytes"),
    "negative link": _put(-1.0, "target", "link_latency_seconds"),
    "negative peak": _put({"float32": -1.0}, "target", "peak_flops"),
    "negative tolerance": _put(-1.0, "reference", "rtol"),
    "negative count of operators": _put({"Mul": -1}, *S, "operators"),
    "nameless operator": _put({"": 1}, *S, "operators"),
    "negative count of experimental": _put({"what": -1}, "experimental"),
    "negative nodes": _put(-1, "source", "nodes"),
    "format version 0": _put(0, "format_version"),
    "format version 2 in a sealed 1": _put(2, "format_version"),
    # Names that are used twice, are empty, or lead nowhere.
    "two graphs of one name": _repeat("graphs"),
    "two symbols of one name": _repeat("symbols"),
    "two regions of one name": _repeat("regions"),
    "two tiers of one name": _repeat("target", "tiers"),
    "two sections of one id": _put(2, *S, "id"),
    "section and fallback of one id": _put(0, *F, "id"),
    "two stages of one name": _put("host", *S, "name"),
    "nameless stage": _put("", *S, "name"),
    "nameless symbol": _put("", *X, "name"),
    "negative stage id": _put(-1, *S, "id"),
    "section of no graph": _put(NO_SUCH, *S, "graph"),
    "section reads no symbol": _put([NO_SUCH], *S, "inputs"),
    "section writes no symbol": _put([NO_SUCH], *S, "outputs"),
    "section holds no symbol": _put([NO_SUCH], *S, "weights"),
    "section reads twice": _put(["x", "x"], *S, "inputs"),
    "section writes twice": _put(["h", "h"], *S, "outputs"),
    "graph input is no symbol": _put([NO_SUCH], *G, "inputs"),
    "graph input twice": _put(["x", "x"], *G, "inputs"),
    "graph output is no symbol": _put([NO_SUCH], *G, "outputs"),
    "region in no tier": _put("cloud", "regions", 0, "tier"),
    "symbol in no region": _put(NO_SUCH, *X, "region"),
    # Members that are others than the stages say.
    "section in another's member": _put("stages/002_FWD.onnx", *S, "member"),
    "section in the manifest": _put("manifest.json", *S, "member"),
    "section outside": _put("../evil.onnx", *S, "member"),
    "section of another type": _put("OPT", *S, "type"),
    "sample without member": _put(None, "reference"),
    "member missing from the list": _drop("members", 2),
    "member listed twice": _repeat("members"),
    "member of another size": _put(1, "members", 0, "bytes"),
    "member of another checksum": _put("0" * 64, "members", 0, "sha256"),
    "stage of another checksum": _put("0" * 64, "members", 2, "sha256"),
    "checksum in capitals": lambda t: t["members"][0].update(
        sha256=t["members"][0]["sha256"].upper()
    ),
    # Symbols that cannot be.
    "symbol of no type": _put("tensor(quark)", *X, "type"),
    "symbol of half a type": _put("tensor(float", *X, "type"),
    "symbol of a deep type": _put("seq(" * 5000 + "tensor(float)" + ")" * 5000, *X, "type"),
    "symbol of other bytes": _put(4801, *X, "bytes"),
    "symbol without bytes": _put(None, *X, "bytes"),
    "symbol of a dynamic shape with bytes": _put(["n", 300], *X, "shape"),
    "symbol of a negative shape": _put([-4, -300], *X, "shape"),
    "symbol of a vast shape": _put([2**62] * 4, *X, "shape"),
    "symbol of many dimensions": _put([1] * 1000, *X, "shape"),
    "symbol larger than its region": _put(4799, "regions", 0, "bytes"),
    "weight stored elsewhere": _put(4160, *W, "stored", "offset"),
    "weight stored in the header": _put(0, *W, "stored", "offset"),
    "weight stored before the file": _put(-4096, *W, "stored", "offset"),
    "weight stored behind the file": _put(1 << 40, *W, "stored", "offset"),
    "weights overlap": _put(4100, *B, "stored", "offset"),
    "weight stored short": _put(4, *W, "stored", "bytes"),
    "weight not stored": _put(None, *W, "stored"),
    "weight of another name": _put("other", *W, "name"),
    "activation stored as a weight": _put({"bytes": 4800, "offset": 4096}, *H, "stored"),
    # A schedule that cannot be run.
    "call of no stage": _put(99, *G, "calls", 0, "stage"),
    "calls out of order": _put(5, *G, "calls", 0, "id"),
    "no calls": _put([], *G, "calls"),
    "read before written": _exchange_calls,
    "output never written": _put(["other"], *("sections", 1), "outputs"),
    # Transfers that have no place in the schedule.
    "transfer of no symbol": _put(NO_SUCH, *RUN, 0, "symbol"),
    "transfer of other bytes": _put(1, *RUN, 0, "bytes"),
    "transfer of negative time": _put(-1.0, *RUN, 0, "seconds"),
    "transfer twice": _repeat(*RUN),
    "transfer at no call": _put(None, *RUN, 0, "call"),
    "transfer behind the last call": _put(3, *RUN, 0, "call"),
    "transfer before the first call": _put(-1, *RUN, 0, "call"),
    "transfer at another call": _put(2, *RUN, 0, "call"),
    "transfer the wrong way": _put("rdu_to_host", *RUN, 0, "direction"),
    "transfer of an input called output": _put("output", *RUN, 0, "cause"),
    "transfer of an input called weight": _put("weight", *RUN, 0, "cause"),
    "transfer on request": _put("explicit", *RUN, 0, "cause"),
    "output transferred before it is written": _put(0, *RUN, 3, "call"),
    "fallback without fallback": _put(2, *RUN, 1, "call"),
    "weight loaded twice": _repeat(*LOAD),
    "weight loaded by a call": _put(0, *LOAD, 0, "call"),
    "weight loaded back": _put("rdu_to_host", *LOAD, 0, "direction"),
    "weight loaded as input": _put("input", *LOAD, 0, "cause"),
    "baked weight loaded": _put(True, *W, "baked"),
    "input loaded as a weight": _add(_move("x", "weight", None), *LOAD),
    "activation loaded as a weight": _add(_move("h", "weight", None), *LOAD),
    # Residents that have no value, or are none.
    "weight without content that nobody loads": _resident("weight"),
    "state that nobody loads": _resident("optimizer_state"),
    "resident without a region": _resident("buffer", ""),
    "gradient loaded": _all(_resident("gradient"), _add(_move("resident", "weight", None), *LOAD)),
    "activation that nobody writes": _resident("activation"),
    "resident copied to the device by its reader": _all(
        _resident("buffer"),
        _add(_move("resident", "weight", None), *LOAD),
        _add(_move("resident", "input", 0), *RUN),
    ),
    "fallback's result copied to the device at once": _put(1, *RUN, 2, "call"),
    # Boundaries that are none.
    "boundary from no stage": _put(99, *EDGE, "before"),
    "boundary to no stage": _put(99, *EDGE, "after"),
    "boundary between sections": _put(2, *EDGE, "after"),
    "boundary crossed by nothing": _put([NO_SUCH], *EDGE, "symbols"),
    "boundary crossed by another": _put(["x"], *EDGE, "symbols"),
    "boundary of more bytes": _put(4801, *EDGE, "bytes"),
    "boundary of negative bytes": _put(-1, *EDGE, "bytes"),
    "boundary of negative time": _put(-1.0, *EDGE, "seconds"),
    # Mini-batches that are none.
    "fewer mini-batches than none": _put(-1, *G, "spatial_batches"),
    "more mini-batches than can be": _put(2**31, *G, "spatial_batches"),
    "mini-batches on the CPU": _put(2, *G, "spatial_batches"),
    "mini-batch in a graph without": _put([2, 300], *X, "batch_shape"),
    "mini-batch of negative size": _put([-4, 300], *X, "batch_shape"),
    # Sizes and names of a model.
    "name of the model for no input": _put({"hidden": "x"}, *G, "model_names"),
    "empty name of the model": _put({"x": ""}, *G, "model_names"),
    "size of no graph": _put([_bound(graph=NO_SUCH)], "bound_dimensions"),
    "negative size": _put([_bound(size=-1)], "bound_dimensions"),
    # Constants in the place of inputs.
    "constant for an input of a graph": _put([_fixed(name="x")], "fixed_inputs"),
    "constant given twice": _put([_fixed(), _fixed()], "fixed_inputs"),
    "constant of no type": _put([_fixed(type="seq(tensor(float))")], "fixed_inputs"),
    "constant of text": _put([_fixed(type="tensor(string)")], "fixed_inputs"),
    "constant of a negative size": _put([_fixed(shape=[-1])], "fixed_inputs"),
    "constant of too few bytes": _put([_fixed(shape=[2])], "fixed_inputs"),
    "constant of huge size": _put([_fixed(shape=[1 << 62, 1 << 62])], "fixed_inputs"),
    "constant that is no base64": _put([_fixed(content="****")], "fixed_inputs"),
    "constant in another script": _put([_fixed(content="é" * 12)], "fixed_inputs"),
    "constant of too many bytes": _put(
        [_fixed(type="tensor(int8)", shape=[(1 << 20) + 2], content="AAAA" * 349526)],
        "fixed_inputs",
    ),
    "no constants, stated": _put([], "fixed_inputs"),
    # Samples and argins of nothing.
    "sample of no graph": _put(NO_SUCH, "reference", "graph"),
    "sample of no input": _put([NO_SUCH], "reference", "inputs"),
    "sample of no output": _put([NO_SUCH], "reference", "outputs"),
    "sample with fewer outputs": _put([], "reference", "outputs"),
    "sample of an output in float32 that it lacks": _put([NO_SUCH], "reference", "wide"),
    "sample of an output in float32 without its arrays": _put(["y"], "reference", "wide"),
    "sample without runs": _put(0, "reference", "runs"),
    "sample of more runs than it holds": _put(2, "reference", "runs"),
    "sample of a million runs": _put(1_000_000, "reference", "runs"),
    "sample of negative depth": _put(-1, "reference", "depth"),
    "sample with an input twice": _put(["x", "x"], "reference", "inputs"),
    "argin of no input": _put(
        [{"default": 0.1, "name": "lr", "stages": [0], "type": "tensor(float)"}], "argins"
    ),
    "argin of another type": _put(
        [{"default": 0.1, "name": "x", "stages": [0], "type": "tensor(int64)"}], "argins"
    ),
    "argin with dimensions": _put(
        [{"default": 0.1, "name": "x", "stages": [0], "type": "tensor(float)"}], "argins"
    ),
    "argin that is copied": _all(
        _add({**_SYMBOL, "bytes": 4, "kind": "input", "name": "lr", "shape": []}, "symbols"),
        _put(["x", "lr"], *G, "inputs"),
        _put(["x", "lr"], *S, "inputs"),
        _put([{"default": 0.1, "name": "lr", "stages": [0], "type": "tensor(float)"}], "argins"),
        _add(_move("lr", "input", 0, 4), *RUN),
    ),
    "argin of no stage": _put(
        [{"default": 0.1, "name": "x", "stages": [9], "type": "tensor(float)"}], "argins"
    ),
}


def hostile_texts(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the same manifest in forms that are not the one form, and texts that are none."""
    yield "space at the end", text + b" "
    yield "line break at the end", text + b"\n"
    yield "space inside", text.replace(b'":', b'": ', 1)
    yield "byte order mark", b"\xef\xbb\xbf" + text
    yield "UTF-16", text.decode().encode("utf-16")
    yield "not UTF-8", text.replace(b'"o3"', b'"o\xff"')
    yield "escaped letter", text.replace(b'"o3"', b'"\\u006f3"')
    yield "surrogate", text.replace(b'"o3"', b'"\\ud800"')
    yield "field twice", text.replace(b'"level":', b'"level":"o0","level":', 1)
    yield "fields out of order", b'{"level":"o3",' + text[1:].replace(b'"level":"o3",', b"", 1)
    yield "other form of a fraction", text.replace(b"1e-06", b"0.000001", 1)
    yield "exponent", text.replace(b'"flops":1200', b'"flops":12e2')
    yield "infinity", text.replace(b"1e-06", b"Infinity", 1)
    yield "vast fraction", text.replace(b"1e-06", b"1e999", 1)
    yield "not a number", text.replace(b"1e-06", b"NaN", 1)
    yield "list", b"[" + text + b"]"
    yield "two documents", text + text
    yield "nothing", b""
    yield "null", b"null"
    yield "half", text[: len(text) // 2]
    yield "deep nesting", b"[" * 100_000 + b"]" * 100_000
    yield "deep objects", b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    yield "long number", b'{"format_version":' + b"9" * 100_000 + b"}"
    yield "zeros", bytes(100_000)
