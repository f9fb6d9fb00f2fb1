"""``sambaflow.samba.utils.utils``: where the documentation places the functions of ``utils``."""

from typing import Final

import samba_onnx.utils
from samba_onnx.functional import SNType
from samba_onnx.sambaflow.symbols import refused
from samba_onnx.utils import *  # noqa: F403  the names are listed there, once

__all__ = ["SNType", "create_mac_resource_report", *samba_onnx.utils.__all__]  # noqa: PLE0604

create_mac_resource_report: Final = refused("sambaflow.samba.utils.create_mac_resource_report")
