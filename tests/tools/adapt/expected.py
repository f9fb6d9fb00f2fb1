"""What becomes of every program of the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"

REFUSED: Final = {
    "arguments_by_place.py": "arguments-by-place",
    "click_group.py": "command-line-library",
    "gan.py": "several-steps",
    "lbfgs_closure.py": "optimizer",
    "lightning_module.py": "framework",
    "rmsprop.py": "optimizer",
    "state_of_none.py": "carried-state",
}
"""The pattern for which a program is refused."""
ALREADY: Final = frozenset({"sambaflow_already.py"})
"""Programs that are left as they are."""
FOLDERS: Final = sorted(
    path.relative_to(CORPUS).as_posix()
    for name in ("main.py", "train.py")
    for path in CORPUS.glob(f"*/{name}")
)
"""Programs of several files, by the one that is executed."""
PROGRAMS: Final = [*sorted(path.name for path in CORPUS.glob("*.py")), *FOLDERS]
ADAPTED: Final = [name for name in PROGRAMS if name not in REFUSED and name not in ALREADY]
UNUSED_STEPS: Final = frozenset({"registry_package/train.py"})
"""Programs with a step that nobody calls, which stays as it is."""
