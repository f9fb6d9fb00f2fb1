"""``sambaflow.online_inference_service``: clients of the vendor's service, which are not here."""

from samba_onnx.sambaflow.online_inference_service import sn_sqs_handler

__all__ = ["sn_sqs_handler"]
