"""``sambaflow.samba.argconf.args``: settings of compiling and running as pydantic models.

Their fields are the rows of ``samba_onnx.sessions.arguments``, so that a command line, a YAML file
and a dict say the same things by the same names. A field that they do not have is kept, for newer
versions of SambaFlow have more of them.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model

from samba_onnx.compiling.sambaflow_arguments import COMPILING, RUNNING, Argument, Command
from samba_onnx.sessions.arguments import ARGUMENTS

__all__ = ["CommonArgs", "CompileArgs", "RunArgs"]


class _Settings(BaseModel):
    """What the three models share; hand one to ``samba.session.setup``."""

    model_config = ConfigDict(extra="allow")


def _type_of(argument: Argument) -> Any:
    """Return what a field may hold; None wherever nothing was said."""
    kind: Any = Literal[argument.choices] if argument.choices else argument.kind
    if argument.several:
        kind = GenericAlias(list, (kind,))
    return kind if argument.default is not None else kind | None


def settings_model(name: str, document: str, commands: frozenset[Command]) -> type[BaseModel]:
    """Return the model of the arguments that some sub-commands have in common.

    Args:
        name: Name of the class.
        document: Its documentation.
        commands: Sub-commands; every argument of SambaFlow's is a field where there are none.
    """
    fields: dict[str, Any] = {
        argument.name: (_type_of(argument), argument.default)
        for argument in ARGUMENTS
        # pydantic has a method of the name "json".
        if argument.commands >= commands and not hasattr(BaseModel, argument.name)
    }
    return create_model(name, __base__=_Settings, __module__=__name__, __doc__=document, **fields)


CommonArgs = settings_model("CommonArgs", "Settings of every sub-command.", COMPILING | RUNNING)
CompileArgs = settings_model("CompileArgs", "Settings of ``compile``.", COMPILING)
RunArgs = settings_model("RunArgs", "Settings of ``run``; ``pef`` is the path of the PEF.", RUNNING)
# SambaFlow has it in another module.
SNConfig = settings_model("SNConfig", "Arguments of all sub-commands.", frozenset())
