"""Stochastic gradient descent."""

from __future__ import annotations

import torch
from torch.optim.optimizer import ParamsT

from samba_onnx.optim.device_optimizer import DeviceOptimizer


class SGD(DeviceOptimizer, torch.optim.SGD):
    """``torch.optim.SGD`` on host and device.

    A run may set ``lr``, ``momentum``, ``dampening`` and ``weight_decay``, whatever they were when
    the program was compiled, and ``max_grad_norm`` if it was set then. The device has a momentum
    for every parameter, which a run without momentum leaves as it is.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
    ) -> None:
        """Make an optimizer.

        Args:
            params: Parameters, named parameters, or groups of them with hyperparameters of their
                own; there may be none.
            lr: Learning rate, at least 0.
            momentum: The part of the momentum that a step keeps; 0 for no momentum at all.
            dampening: The part of every gradient but the first that does not enter the momentum.
            weight_decay: Factor of the L2 penalty: so much of every weight is added to its gradient.
            nesterov: Whether to use Nesterov momentum.
            maximize: Whether to follow the gradient upwards, to a larger loss.
            max_grad_norm: Largest L2 norm of all gradients taken as one vector; longer ones are
                scaled down to it before the update. None leaves gradients as they are.
            fp32_params: Whether to keep float32 copies of bfloat16 and float16 parameters. The
                copies are updated then, and the parameters are their roundings.
            argin_region_name: Prefix of the keys by which a run sets these hyperparameters, as
                ``REGION_lr``; empty for keys without a prefix.

        Raises:
            UsageError: ``max_grad_norm`` is negative.
            ValueError: Another value is out of range; from torch.
        """
        # Before torch's constructor, which refuses an empty list of parameters.
        params = self._extend(params, max_grad_norm, fp32_params, argin_region_name)
        torch.optim.SGD.__init__(
            self,
            params,
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
        )
