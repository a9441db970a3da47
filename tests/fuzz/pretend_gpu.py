"""A second device for a machine that has none: tensors in host memory that count as a GPU's, and may not meet others.

Within ``PretendGpu`` a tensor made with ``device="cuda"``, or moved there, is one; what is computed of it is one too. An
operation on tensors of both devices raises, as torch does; so does looking into a GPU's tensor from numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map

CUDA = torch.device("cuda", 0)


class OnGpu(torch.Tensor):
    """A tensor that counts as being on the GPU. What it does is decided by PretendGpu alone."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class PretendGpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        on_gpu = any(isinstance(value, OnGpu) for value in tree_iter((args, kwargs)))
        if func in _ANSWERS and on_gpu:
            return _ANSWERS[func]
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if on_gpu and not caller.startswith("stubs.kernels"):  # what stands in for closed kernels is of the host
            _check(func, args, kwargs)
        goal = _goal(func, args, kwargs)
        makes_gpu = on_gpu if goal is None else goal.type == "cuda"
        if goal is not None and goal.type == "cuda":
            args, kwargs = tree_map(_device_of_host, (args, kwargs))
            kwargs.pop("pin_memory", None)
        if func is torch.Tensor.cuda:
            func, args = torch.Tensor.cpu, args[:1]
        out = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
        return tree_map(_as_gpu, out) if makes_gpu else out


# In these the tensors may be on two devices: copies, and indices that lie on the host.
_COPIES = {torch.Tensor.copy_, torch.Tensor.to, torch.Tensor.__getitem__}
_ANSWERS: dict[Any, Any] = {torch.Tensor.device.__get__: CUDA, torch.Tensor.is_cuda.__get__: True}  # type: ignore[attr-defined]


def _check(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where torch would: a tensor of the host, not a single number, beside one of the GPU."""
    if func in (torch.Tensor.numpy, torch.Tensor.__array__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")
    if func in _COPIES:
        return
    if func is torch.Tensor.__setitem__:
        if not any(isinstance(index, torch.Tensor) for index in tree_iter(args[1])):
            return  # a copy into a slice
        args = (args[0], args[2])
    for value in tree_iter((args, kwargs)):
        if isinstance(value, torch.Tensor) and not isinstance(value, OnGpu) and value.dim():
            name = getattr(func, "__qualname__", func)
            raise RuntimeError(f"Expected all tensors to be on the same device, but {name} got cuda:0 and cpu")


def _goal(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """The device that a call names, or None."""
    if func is torch.Tensor.cpu:
        return torch.device("cpu")
    if func is torch.Tensor.cuda:
        return CUDA
    named = [kwargs.get("device"), *(args[1:] if func is torch.Tensor.to else ())]
    for value in named:
        if isinstance(value, (str, torch.device)):
            return torch.device(value)
        if isinstance(value, torch.Tensor):
            return CUDA if isinstance(value, OnGpu) else torch.device("cpu")
    return None


def _device_of_host(value: Any) -> Any:
    is_cuda = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
    return "cpu" if is_cuda else value


def _plain(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, OnGpu) else value


def _as_gpu(value: Any) -> Any:
    return value.as_subclass(OnGpu) if isinstance(value, torch.Tensor) else value
