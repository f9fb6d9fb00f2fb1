"""What a PEF calls its weights, scalars and sections."""

from __future__ import annotations

from samba_onnx.compiling.torch.session_records import read_optimizers
from samba_onnx.facts.names import RATE, SEED, SEPARATOR
from samba_onnx.optim.argins import hyperparameter_names
from samba_onnx.program.kinds import SymbolKind
from samba_onnx.sessions.loaded import LoadedProgram
from samba_onnx.sessions.ordered_set import OrderedSet


class ProgramNames:
    """Names of what the loaded program has, for programs that run it."""

    def __init__(self, program: LoadedProgram) -> None:
        """Take what has the names.

        Args:
            program: Must have a PEF before it is asked.
        """
        self._program = program

    def get_weight_names(self) -> list[str]:
        """Return the names of all weights of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        manifest = self._program.manifest
        # What an optimizer writes is the same weight under another name.
        updates = {name for stage in manifest.stages().values() for name in stage.outputs}
        weights = [symbol.name for symbol in manifest.symbols if symbol.kind is SymbolKind.WEIGHT]
        return [name for name in weights if name not in updates]

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the scalars that a run may be given: keys of ``hyperparam_dict``.

        Raises:
            NotTracedError: The session has no PEF.
        """
        manifest = self._program.manifest
        argins = [argin.name for argin in manifest.argins]
        names: list[str] = []
        for record in read_optimizers(manifest):
            # What the optimizer's sections read is derived from these.
            names += hyperparameter_names(record)
            # They begin with the name of their optimizer; its keys stand for all of them.
            argins = [name for name in argins if not name.startswith(f"{record.name}{SEPARATOR}")]
        return OrderedSet([*names, *argins])

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the rates of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return [name for name in self.get_argin_names() if name.endswith(RATE)]

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the seeds of the dropouts.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return [name for name in self.get_argin_names() if name.endswith(SEED)]

    def get_section_types(self) -> set[str]:
        """Return the types of the sections of the PEF.

        Raises:
            NotTracedError: The session has no PEF.
        """
        return {stage.type.value for stage in self._program.manifest.stages().values()}

    def get_section_ids(self) -> list[int]:
        """Return the ids of the sections and fallbacks of the PEF, in the order of the schedule.

        Raises:
            NotTracedError: The session has no PEF.
        """
        calls = [call for graph in self._program.manifest.graphs for call in graph.calls]
        # Each once: a section may be called several times.
        return list(dict.fromkeys(call.stage for call in calls))
