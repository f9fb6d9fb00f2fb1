"""Files of another kind than a command reads: which command is for them."""

from __future__ import annotations

from samba_onnx.compiling.model_sources import is_factory, is_torch_model
from samba_onnx.errors import UsageError

_MODELS = (".onnx", ".pb", ".onnxtxt", ".textproto")


def refuse_model(path: str, command: str) -> None:
    """Refuse a model where a PEF is expected.

    Told by the name alone: what is in the file of another name, the reader of PEFs says.

    Args:
        path: What the user named.
        command: The command's name.

    Raises:
        UsageError: It names an ONNX model, a PyTorch model, or a report in JSON.
    """
    if path.endswith(".json"):
        raise UsageError(
            f"{path} is a JSON document, and {command} reads a PEF: diff reads reports"
        )
    if not is_torch_model(path) and not path.endswith(_MODELS):
        return
    what = "a factory" if is_factory(path) else "a PyTorch model" if is_torch_model(path) else ""
    raise UsageError(
        f"{path} is {what or 'an ONNX model'}, and {command} reads a PEF: samba-port analyze {path} "
        f"reports on the model, samba-port convert {path} makes a PEF of it"
    )


def refuse_pef(path: str, command: str) -> None:
    """Refuse a PEF where a model is expected.

    Args:
        path: What the user named.
        command: The command's name.

    Raises:
        UsageError: It names a PEF.
    """
    if path.endswith(".pef"):
        raise UsageError(
            f"{path} is a PEF, and {command} reads a model: samba-port inspect {path} reports on it, "
            f"samba-port run {path} runs it"
        )
