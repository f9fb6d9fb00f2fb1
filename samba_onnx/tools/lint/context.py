"""What checks know besides the file that they look at: the other files, and the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from samba_onnx.tools.lint.findings import Remarks
from samba_onnx.tools.lint.source import SourceFile
from samba_onnx.tools.lint.traced_functions import TracedFunctions


class LintContext:
    """The files that make up a program, and what its target does not run."""

    def __init__(
        self, files: Sequence[SourceFile], target: str, unsupported: Mapping[str, str]
    ) -> None:
        """Put files and target together.

        Args:
            files: All files of the program.
            target: Name of the target.
            unsupported: Why the target does not run an ONNX operator, by the operator.
        """
        self.files = tuple(files)
        self.target = target
        self.unsupported = unsupported
        # Several checks ask for this, and following values through a file takes long.
        self._traced: dict[SourceFile, TracedFunctions] = {}

    def traced(self, source: SourceFile) -> TracedFunctions:
        """Return the traced functions of a file."""
        if source not in self._traced:
            self._traced[source] = TracedFunctions(source)
        return self._traced[source]

    # All files of the program: one converts a model that another one compiles.
    def calls(self, *names: str) -> bool:
        """Whether any file of the program calls one of some functions.

        Args:
            *names: Dotted names, as ``samba.session.run``.
        """
        return any(name in names for source in self.files for _, name in source.calls)


Check = Callable[[SourceFile, LintContext], Remarks]
"""Looks at one file of a program, and says what it finds."""
