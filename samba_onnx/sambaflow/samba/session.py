"""``sambaflow.samba.session``: the class of the session.

``samba.session`` itself is the session that every program uses, an object of this class.
"""

from samba_onnx.sessions import SESSION as session  # noqa: N811  documented in lower case
from samba_onnx.sessions import SambaSession

__all__ = ["SambaSession", "session"]
