"""``sambaflow.samba.utils.trainer.torch``: a training loop on the host, whose arguments nobody has published."""

from typing import Final

from samba_onnx.sambaflow.symbols import refused

__all__ = ["train"]

train: Final = refused("sambaflow.samba.utils.trainer.torch.train")
