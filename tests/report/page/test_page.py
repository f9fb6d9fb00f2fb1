"""The page of a report: what it says, what it may do, and what it makes of hostile names."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import html.parser
import json
import re

import onnx
import pytest
from onnx import TensorProto, helper

import samba_onnx
from samba_onnx.report.page.page import report_page
from samba_onnx.report.program.program_records import (
    EdgeReport,
    NodeReport,
    ProgramReport,
)
from tests.report.samples import all_on_rdu, detector

pytest.importorskip("jinja2")

HOSTILE = "</script><script>alert(1)</script>\u202e\"'><img src=x onerror=alert(2)>{{7*7}}"


class Elements(html.parser.HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)


def hostile_model() -> onnx.ModelProto:
    """A model whose every name is hostile."""
    nodes = [
        helper.make_node("MatMul", ["x", "x"], [f"a{HOSTILE}"], name=f"/{HOSTILE}/MatMul"),
        helper.make_node("LpPool", [f"a{HOSTILE}"], ["b"], name=HOSTILE, kernel_shape=[1]),
        helper.make_node("Exp", ["b"], [f"y{HOSTILE}"], name=f"/{HOSTILE}/Exp"),
    ]
    for node in nodes:
        node.metadata_props.add(
            key="pkg.torch.onnx.stack_trace", value='File "/m/<b>.py", line 7, in forward'
        )
    shape = [2, 8, 8]
    graph = helper.make_graph(
        nodes,
        HOSTILE,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"y{HOSTILE}", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def hostile() -> str:
    report = samba_onnx.Report.from_manifest(
        samba_onnx.analyze(hostile_model(), placement="strict")
    )
    return report_page(report, "analyze")


def page(report: samba_onnx.Report) -> str:
    return report_page(report, "analyze")


def test_the_answer_stands_on_it() -> None:
    report = samba_onnx.Report.from_manifest(detector())
    text = html.unescape(page(report))
    for words in (
        "detector.onnx",
        "sn40l has no NonMaxSuppression",
        "detector.py:41",
        "scores, boxes",
    ):
        assert words in text
    assert report.headline.removeprefix("detector.onnx").strip() in text


def test_one_model_gives_one_page() -> None:
    pages = {page(samba_onnx.Report.from_manifest(detector())) for _ in range(3)}
    assert len(pages) == 1


def test_a_report_without_its_program_has_no_script() -> None:
    elements = Elements(page(samba_onnx.Report.from_manifest(all_on_rdu())))
    assert [tag for tag, _ in elements.tags if tag in ("script", "canvas")] == []


def test_hostile_names_are_text(hostile: str) -> None:
    elements = Elements(hostile)
    assert [tag for tag, _ in elements.tags].count("script") == 2
    assert "img" not in {tag for tag, _ in elements.tags}
    assert "49" not in hostile.partition("<h1>")[2].partition("</h1>")[0]
    assert "\u202e" not in hostile
    handlers = [
        name for _, attributes in elements.tags for name in attributes if name.startswith("on")
    ]
    assert handlers == []


def test_data_are_json_with_all_names(hostile: str) -> None:
    data = json.loads(Elements(hostile).texts["script"][0])
    names: list[str] = []
    for coded in data["node"]["name"]:
        names.append((names or [""])[-1][: int(coded[:2], 16)] + coded[2:])
    assert names[1] == HOSTILE.replace("\u202e", "\\u202e")
    assert any("<b>.py:7" in text for text in data["texts"])


def test_the_policy_allows_what_is_there_and_nothing_else(hostile: str) -> None:
    elements = Elements(hostile)
    policy = next(
        a["content"] for _, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    style = hostile.partition("<style>")[2].partition("</style>")[0]
    script = hostile.rpartition("<script>")[2].partition("</script>")[0]
    for text, kind in ((style, "style-src"), (script, "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    # Nothing to fetch, and no style where the policy has none.
    names = {name for _, attributes in elements.tags for name in attributes}
    assert names.isdisjoint({"src", "srcset", "style", "data", "action", "poster"})
    links = [a["href"] or "" for tag, a in elements.tags if tag in ("a", "link") and a.get("href")]
    assert all(link.startswith("#") for link in links)
    assert re.search(r"url\(|@import|https?:", style) is None


def test_links_lead_to_places_of_the_page(hostile: str) -> None:
    elements = Elements(hostile)
    places = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(places) == len(set(places))
    links = {(a["href"] or "")[1:] for tag, a in elements.tags if tag == "a"}
    labels = {a["aria-labelledby"] for _, a in elements.tags if "aria-labelledby" in a}
    assert links | labels <= set(places)


def large(nodes: int) -> samba_onnx.Report:
    """A report on a program of layers of 25 nodes, 70 in a section."""
    report = samba_onnx.Report.from_manifest(all_on_rdu())
    count = nodes // 70
    graph = report.graphs[0]
    calls = tuple(
        dataclasses.replace(graph.schedule[0], id=n, stage=n, name=f"model.layers_{n}")
        for n in range(count)
    )
    sections = tuple(
        dataclasses.replace(report.sections[0], id=n, name=f"model.layers_{n}")
        for n in range(count)
    )
    records = tuple(
        NodeReport(
            id=n, name=f"/model/layers.{n // 25}/self_attn/projection_{n % 25}/MatMul", operator=f"Op{n % 9}",
            stage=n // 70, home="rdu", reason="", location=f"modeling_decoder.py:{n % 25 + 100}",
            module=f"model.layers.{n // 25}.self_attn.projection_{n % 25}", flops=123_456_789, weight_bytes=1_000_000,
            modelled_seconds=1.234567e-6,
        )
        for n in range(count * 70)
    )  # fmt: skip
    edges = tuple(
        EdgeReport(f"/model/layers.{n // 25}/value_{n}", "main", "tensor(float)", (1, 16, 64), 4096, n,
                   tuple(t for t in (n + 1, n + 3) if t < len(records)), crosses=False)
        for n in range(len(records))
    )  # fmt: skip
    return dataclasses.replace(
        report,
        sections=sections,
        graphs=(dataclasses.replace(graph, schedule=calls),),
        program=ProgramReport(records, edges, ()),
    )


@pytest.mark.parametrize(("nodes", "most"), [(10_000, 3_000_000), (30_000, 5_000_000)])
def test_large_models_have_pages_that_can_be_sent(nodes: int, most: int) -> None:
    assert len(page(large(nodes)).encode()) < most
