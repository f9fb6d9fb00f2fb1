"""``sambaflow.samba.experiment_logger``: meters of a training, whose contents are not published."""

from typing import Final

from samba_onnx.sambaflow.symbols import refused

__all__ = ["AccMeter", "CountMeter", "DisplayMeter", "Logger"]

AccMeter: Final = refused("sambaflow.samba.experiment_logger.AccMeter")
CountMeter: Final = refused("sambaflow.samba.experiment_logger.CountMeter")
DisplayMeter: Final = refused("sambaflow.samba.experiment_logger.DisplayMeter")
Logger: Final = refused("sambaflow.samba.experiment_logger.Logger")
