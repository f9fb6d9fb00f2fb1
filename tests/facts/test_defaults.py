"""What commands, functions and sessions take where nobody says otherwise is stated once."""

from __future__ import annotations

import re

from samba_onnx.facts import defaults
from tests.test_house import sources


def test_no_argument_states_a_default_again() -> None:
    values = {str(getattr(defaults, name)) for name in defaults.__all__}
    argument = re.compile(rf'^ +(\w+): [^=\n]+ = "({"|".join(values)})",?$', re.MULTILINE)
    again = {
        f"{path}: {match[0].strip()}"
        for path, text in sources().items()
        for match in argument.finditer(text)
    }
    assert again == set()
