"""Makes the page of a report: its templates, its style and its script in one file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from samba_onnx.errors import MissingLibraryError
from samba_onnx.report.brief import fact_lines
from samba_onnx.report.page.charts import (
    longest_operators,
    longest_stages,
    memory_charts,
    roofline,
    time_bars,
)
from samba_onnx.report.page.graph_data import graph_json
from samba_onnx.report.report import Report
from samba_onnx.report.units import (
    byte_text,
    flop_text,
    percent_text,
    printable,
    second_text,
)

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["page_html", "report_page", "require_jinja"]

SCRIPTS: Final = ("model.js", "drawing.js", "controls.js")
"""Parts of the one script, in the order in which they run."""
_ROWS: Final = 200
"""Rows of a table of the page: behind them it says how many are left out."""


def report_page(report: Report, command: str) -> str:
    """Return the page of a report.

    Args:
        report: The report, with its program.
        command: The command that made it.

    Returns:
        HTML in one file: the same report gives the same bytes.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    return page_html(
        "report.html",
        title=f"{report.model.name} on {report.target}",
        data=graph_json(report),
        report=report,
        # The name stands above it in large letters.
        answer=report.headline.removeprefix(printable(report.model.name)).strip(),
        command=command,
        facts=fact_lines(report),
        times=time_bars(report),
        stages=longest_stages(report),
        operators=longest_operators(report),
        memory=memory_charts(report),
        roofline=roofline(report),
        errors=False,
        names={call.stage: call.name for graph in report.graphs for call in graph.schedule},
    )


def page_html(
    template: str, *, title: str, data: str = "null", sortable: bool = False, **content: object
) -> str:
    """Return a page.

    Args:
        template: Name of a file beside this one's ``templates``.
        title: What a window is called.
        data: JSON for the script, safe within an element; ``null`` for a page without one.
        sortable: Whether tables can be sorted.
        **content: What the template says.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    environment = _environment()
    names = (*(() if data == "null" else SCRIPTS), *(("sorting.js",) if sortable else ()))
    script = _wrapped("".join(map(_asset, names))) if names else ""
    # Read for each page: a program writes one or two of them.
    style = _asset("page.css")
    text: str = environment.get_template(template).render(
        title=title,
        # What the browser may run and apply is these two texts, and nothing else on the page.
        policy=_policy(style, script),
        style=_marked(style),
        script=_marked(script),
        data=_marked(data),
        rows=_ROWS,
        **content,
    )
    # Names of files may hold bytes that are no text.
    return text.encode("utf-8", "backslashreplace").decode()


def require_jinja() -> None:
    """Refuse to begin work whose answer could not be written.

    Raises:
        MissingLibraryError: The extra ``html`` is not installed.
    """
    _environment()


def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingLibraryError(
            "--html needs jinja2: install it with pip install 'samba-onnx[html]'"
        ) from None
    environment = Environment(
        loader=PackageLoader("samba_onnx.report.page"),
        # Whatever a template shows came from a file of somebody else, but for what is marked.
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: Mapping[str, Any] = {
        "bytes": byte_text,
        "flops": flop_text,
        "seconds": second_text,
        "percent": percent_text,
    }
    environment.filters.update(filters)
    return environment


def _shown(value: object) -> object:
    """Return what stands on the page for a value: text without characters that turn or hide what is around them."""
    from markupsafe import Markup

    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> str:
    return files("samba_onnx.report.page").joinpath("templates", name).read_text(encoding="utf-8")


def _wrapped(script: str) -> str:
    """Return a script whose names no other one sees."""
    return f'(() => {{\n"use strict";\n{script}}})();\n'


def _marked(text: str) -> Any:
    """Return text of our own that stands on the page as it is."""
    from markupsafe import Markup

    return Markup(text)


def _policy(style: str, script: str) -> str:
    """Return what the browser is allowed: no request, and no style or script but the one of the page."""
    parts = [
        "default-src 'none'",
        f"style-src {_digest(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    parts += [f"script-src {_digest(script)}"] if script else []
    return "; ".join(parts)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
