"""Adam with coupled and with decoupled weight decay."""

from __future__ import annotations

import torch
from torch.optim.optimizer import ParamsT

from samba_onnx.optim.device_optimizer import DeviceOptimizer


class AdamW(DeviceOptimizer, torch.optim.AdamW):
    """``torch.optim.AdamW`` on host and device, with SambaFlow's defaults.

    ``betas`` and ``weight_decay`` differ from torch's defaults, which are (0.9, 0.999) and 0.01. A
    run may set ``lr``, ``betas`` (or ``beta1`` and ``beta2``), ``eps`` and ``weight_decay``, and
    ``max_grad_norm`` if it was set when the program was compiled.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.997),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
        *,
        maximize: bool = False,
    ) -> None:
        """Make an optimizer.

        Args:
            params: Parameters, named parameters, or groups of them with hyperparameters of their
                own.
            lr: Learning rate.
            betas: Decay of the averages of gradients and of their squares.
            eps: Added to the denominator.
            weight_decay: What weights shrink by, times the learning rate.
            amsgrad: Whether to divide by the largest average of squares so far.
            max_grad_norm: Largest norm of all gradients together; None leaves them as they are.
            fp32_params: Whether to keep float32 copies of bfloat16 and float16 parameters, and
                update these.
            argin_region_name: Leads the keys by which a run sets these hyperparameters.
            maximize: Whether to go up instead of down.

        Raises:
            UsageError: ``max_grad_norm`` is negative.
            ValueError: Another value is out of range; from torch.
        """
        self._extend(max_grad_norm, fp32_params, argin_region_name)
        torch.optim.AdamW.__init__(
            self, params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize
        )


class Adam(DeviceOptimizer, torch.optim.Adam):
    """``torch.optim.Adam`` on host and device: weight decay is part of the gradient.

    Arguments and what a run may set are as of ``AdamW``, and so are defaults.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.997),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
        *,
        maximize: bool = False,
    ) -> None:
        """Make an optimizer.

        Args:
            params: Parameters of the model, or parameter groups with options of their own.
            lr: Learning rate.
            betas: Decay of the averages of gradients and of their squares.
            eps: Added to the denominator.
            weight_decay: L2 penalty.
            amsgrad: Whether to divide by the largest average of squares so far.
            max_grad_norm: Largest norm of all gradients together; None leaves them as they are.
            fp32_params: Whether to keep float32 copies of bfloat16 and float16 parameters, and
                update these.
            argin_region_name: Leads the keys by which a run sets these hyperparameters.
            maximize: Whether to go up instead of down.

        Raises:
            UsageError: ``max_grad_norm`` is negative.
            ValueError: Another value is out of range; from torch.
        """
        self._extend(max_grad_norm, fp32_params, argin_region_name)
        torch.optim.Adam.__init__(
            self, params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize
        )
