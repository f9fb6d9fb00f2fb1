"""``sambaflow.samba.utils.benchmark_acc``: reports of how good a trained model is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from samba_onnx.safety.files import atomic_output

__all__ = ["AccuracyReport"]


class AccuracyReport:
    """What a training came to, as one document of JSON."""

    def __init__(
        self,
        val_accuracy: float | None = None,
        batch_size: int | None = None,
        num_iterations: int | None = None,
        val_metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Keep what the report says; what is None is left out of it.

        Args:
            val_accuracy: Accuracy on data that were not trained with, in the program's own unit.
            batch_size: Samples per step.
            num_iterations: Steps that were made.
            val_metrics: Measures on data that were not trained with, by name.
        """
        self.val_accuracy = val_accuracy
        self.batch_size = batch_size
        self.num_iterations = num_iterations
        self.val_metrics = None if val_metrics is None else dict(val_metrics)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report.

        Args:
            path: The JSON file.

        Raises:
            OutputError: It cannot be written.
        """
        values = {name: value for name, value in vars(self).items() if value is not None}
        with atomic_output(Path(path)) as file:
            # Scalars of numpy and torch are no numbers to json, and become such.
            file.write(json.dumps(values, indent=1, default=float).encode())
