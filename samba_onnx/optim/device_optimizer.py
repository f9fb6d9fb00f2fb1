"""What the optimizers of this package have beyond torch's: state on the device, float32 copies."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from torch.optim.optimizer import ParamsT

from samba_onnx.errors import UsageError
from samba_onnx.optim.records import MASTER
from samba_onnx.optim.transfers import ROUNDING_STEPS, has_master, master_of, to_cpu, to_rdu
from samba_onnx.tensor.conversion import to_torch

_REGION: Final = "argin_region_name"
_OWN: Final = ("max_grad_norm", "fp32_params", _REGION, "device_steps", ROUNDING_STEPS)


class DeviceOptimizer(torch.optim.Optimizer):
    """A torch optimizer whose state also lives on the device.

    Subclasses name it before one of torch's classes among their bases. On the host it computes what
    torch computes; on the device its update is the OPT section of the program that it is compiled
    into.
    """

    max_grad_norm: float | None
    """Largest L2 norm of all gradients taken as one vector; longer ones are scaled down to it."""
    fp32_params: bool
    """Whether parameters of low precision have a float32 copy that is updated in their place."""
    argin_region_name: str
    """Prefix of the keys by which a run sets hyperparameters; a group may have its own."""
    device_steps: tuple[int, ...] = ()
    """Number of steps that the state of each group on the device stands for, of SGD of those with
    momentum; empty before any. The session counts them."""
    rounding_steps: int = 0
    """Number of steps of SGD, in a program that rounds at random, that the state on the device stands for."""

    def _extend(
        self,
        params: ParamsT,
        max_grad_norm: float | None,
        fp32_params: bool,
        argin_region_name: str,
    ) -> ParamsT:
        """Keep what torch's classes do not have, and return the parameters as they take them.

        torch refuses an empty list. Programs make an optimizer for each kind of parameters, and a
        model need not have all kinds: SambaFlow takes the empty list, so that it is a group without
        parameters here.
        """
        if max_grad_norm is not None and not max_grad_norm >= 0:
            raise UsageError(f"max_grad_norm is {max_grad_norm}; give at least 0, or None")
        self.max_grad_norm = max_grad_norm
        self.fp32_params = fp32_params
        self.argin_region_name = argin_region_name
        if isinstance(params, torch.Tensor):  # which torch refuses, and says what it is
            return params
        listed: list[Any] = list(params)
        return listed or [{"params": []}]

    def rdu(self) -> None:
        """Copy the state from the host to the device.

        State that the host does not have yet is sent as torch's first step would find it: zeros,
        and the weight itself for its float32 copy.

        Raises:
            NoDeviceError: No program with this optimizer is loaded.
            UsageError: A parameter has no name, or parameters of a group differ in their number of
                steps.
        """
        self.device_steps = to_rdu(self)

    def cpu(self, inplace: bool = False) -> None:
        """Copy the state from the device to the host.

        Args:
            inplace: Whether to write into the tensors that the state has. Otherwise it gets new
                ones.

        Raises:
            NoDeviceError: No program with this optimizer is loaded.
            UsageError: A parameter has no name.
        """
        steps = self.device_steps or (0,) * len(self.param_groups)
        to_cpu(self, steps, inplace=inplace)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters on the host from their ``grad``; the device does not change.

        Args:
            closure: A function without arguments that computes the loss anew, and its gradients;
                None to use the gradients that are there.

        Returns:
            The loss that the closure returned; None without a closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # torch wraps the step of every class that it makes an optimizer of, for its hooks: this
        # class's is wrapped already, and hooks are to be called once.
        update = inspect.unwrap(super().step)
        with torch.no_grad(), self._plain_parameters() as parameters:
            if self.max_grad_norm is not None:
                # Over the parameters of all groups together: there is one norm, on the device as well.
                nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
            update(self)
        return loss

    # By this attribute ``reading`` knows a step that computes what torch's does.
    step._samba_step = True  # type: ignore[attr-defined]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another optimizer.

        Args:
            state_dict: The result of ``state_dict()`` of an optimizer of the same kind, of this
                package or of torch.

        Raises:
            ValueError: torch raises it: the optimizer that was saved has other groups.
        """
        regions = [group.get(_REGION) for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, region in zip(self.param_groups, regions, strict=True):
            if region is not None:
                group.setdefault(_REGION, region)
        # torch converts state to the parameter's dtype; float32 copies are not to lose precision.
        keys = itertools.chain.from_iterable(g["params"] for g in state_dict["param_groups"])
        parameters = itertools.chain.from_iterable(g["params"] for g in self.param_groups)
        for key, parameter in zip(keys, parameters, strict=True):
            if has_master(parameter, fp32_params=self.fp32_params):
                for name, value in state_dict["state"].get(key, {}).items():
                    if isinstance(value, torch.Tensor):
                        self.state[parameter][name] = to_torch(value).detach().clone()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _OWN}}

    @contextmanager
    def _plain_parameters(self) -> Iterator[list[nn.Parameter]]:
        """Give torch a plain parameter in the place of each, and take back what it did to them.

        A twin is the float32 copy where the parameter has one, and has the parameter's memory
        otherwise; its gradient may be clipped without changing the parameter's.
        """
        twins: list[tuple[torch.Tensor, nn.Parameter]] = []
        originals = [group["params"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                pairs = [(parameter, self._twin(parameter)) for parameter in group["params"]]
                # Torch updates what is in its groups: for one step that is the twins.
                group["params"] = [twin for _, twin in pairs]
                twins += pairs
            yield [twin for _, twin in twins]
        finally:
            for group, parameters in zip(self.param_groups, originals, strict=True):
                group["params"] = parameters
            for parameter, twin in twins:
                self._take_back(parameter, twin)

    def _twin(self, parameter: torch.Tensor) -> nn.Parameter:
        """Return what torch updates in a parameter's place, with the parameter's state."""
        state = self.state.pop(parameter, {})
        plain = to_torch(parameter).detach()
        if has_master(parameter, fp32_params=self.fp32_params):
            plain = master_of(parameter, state)
        twin = nn.Parameter(plain, requires_grad=False)
        if parameter.grad is not None:
            gradient = to_torch(parameter.grad).detach().to(plain.dtype)
            # Clipping scales in place; as on the device, ``grad`` stays as it was computed.
            twin.grad = gradient if self.max_grad_norm is None else gradient.clone()
        if state:
            self.state[twin] = state
        return twin

    def _take_back(self, parameter: torch.Tensor, twin: nn.Parameter) -> None:
        """Return a twin's state to its parameter, and round the float32 copy into it."""
        state = self.state.pop(twin, {})
        if has_master(parameter, fp32_params=self.fp32_params) and twin.grad is not None:
            state[MASTER] = twin.detach()
            to_torch(parameter).detach().copy_(twin)
        if state:
            self.state[parameter] = state
