"""The reader that ``docs/pef.md`` shows, as a module."""

from __future__ import annotations

import functools
import re
import types
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "pef.md"


def source() -> str:
    """Return the program as it stands on the page."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


@functools.cache
def reader() -> Any:
    """Return the program as a module, without its main part."""
    module = types.ModuleType("pef_reader")
    exec(compile(source(), str(PAGE), "exec"), module.__dict__)
    return module
