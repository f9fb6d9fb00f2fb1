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
                own; there may be none.
            lr: Learning rate, at least 0.
            betas: Decay per step of the running averages of gradients and of their squares, each
                from 0 to below 1.
            eps: A small number that is added to the denominator, against division by zero.
            weight_decay: The part of every weight, times the learning rate, that a step takes away.
            amsgrad: Whether to divide by the root of the largest average of squares so far,
                instead of that of the current one.
            max_grad_norm: Largest L2 norm of all gradients taken as one vector; longer ones are
                scaled down to it before the update. None leaves gradients as they are.
            fp32_params: Whether to keep float32 copies of bfloat16 and float16 parameters. The
                copies are updated then, and the parameters are their roundings.
            argin_region_name: Prefix of the keys by which a run sets these hyperparameters, as
                ``REGION_lr``; empty for keys without a prefix.
            maximize: Whether to follow the gradient upwards, to a larger loss.

        Raises:
            UsageError: ``max_grad_norm`` is negative.
            ValueError: Another value is out of range; from torch.
        """
        # Before torch's constructor, which refuses an empty list of parameters.
        params = self._extend(params, max_grad_norm, fp32_params, argin_region_name)
        torch.optim.AdamW.__init__(
            self, params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize
        )


class Adam(DeviceOptimizer, torch.optim.Adam):
    """``torch.optim.Adam`` on host and device: weight decay is part of the gradient.

    Its arguments, their defaults and the hyperparameters that a run may set are those of ``AdamW``.
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
                own; there may be none.
            lr: Learning rate, at least 0.
            betas: Decay per step of the running averages of gradients and of their squares, each
                from 0 to below 1.
            eps: A small number that is added to the denominator, against division by zero.
            weight_decay: Factor of the L2 penalty: so much of every weight is added to its gradient.
            amsgrad: Whether to divide by the root of the largest average of squares so far,
                instead of that of the current one.
            max_grad_norm: Largest L2 norm of all gradients taken as one vector; longer ones are
                scaled down to it before the update. None leaves gradients as they are.
            fp32_params: Whether to keep float32 copies of bfloat16 and float16 parameters. The
                copies are updated then, and the parameters are their roundings.
            argin_region_name: Prefix of the keys by which a run sets these hyperparameters, as
                ``REGION_lr``; empty for keys without a prefix.
            maximize: Whether to follow the gradient upwards, to a larger loss.

        Raises:
            UsageError: ``max_grad_norm`` is negative.
            ValueError: Another value is out of range; from torch.
        """
        params = self._extend(params, max_grad_norm, fp32_params, argin_region_name)
        torch.optim.Adam.__init__(
            self, params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize
        )
