"""``sambaflow.online_inference_service.sn_sqs_handler``: a queue of the vendor's service."""

from typing import Final

from samba_onnx.sambaflow.symbols import refused

__all__ = ["Queue"]

Queue: Final = refused("sambaflow.online_inference_service.sn_sqs_handler.Queue")
