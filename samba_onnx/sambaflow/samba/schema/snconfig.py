"""``sambaflow.samba.schema.snconfig``: the schema by which ``SambaConfig`` checks a command line."""

from samba_onnx.sambaflow.samba.argconf.args import settings_model

__all__ = ["SNConfig"]

SNConfig = settings_model("SNConfig", "Arguments of all sub-commands.", frozenset())
