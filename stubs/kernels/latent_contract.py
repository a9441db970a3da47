"""What calls of the kernels for latent attention have in common: shapes of queries and of paged rows of latent KV."""

from __future__ import annotations

import torch

from stubs.kernels.contract import require


def check_query(
    function: str, argument: str, q: torch.Tensor, trailing: tuple[int, ...], dtype: torch.dtype | None = None
) -> None:
    """q [rows, *trailing], dense along its last dimension; of ``dtype``, where one was planned."""
    shape = tuple(q.shape)
    wanted = ", ".join(map(str, trailing))
    require(shape[1:] == trailing, function, argument, f"{shape}, expected [rows, {wanted}]", rule="shape")
    require(q.stride(-1) == 1, function, argument, f"has last stride {q.stride(-1)}, expected 1", rule="stride")
    require(dtype is None or q.dtype == dtype, function, argument, f"is {q.dtype}, expected {dtype}", rule="dtype")


def check_rows(
    function: str, argument: str, cache: torch.Tensor, page: int, width: int, dtype: torch.dtype | None = None
) -> None:
    """A cache [pages, page, width] of latent rows; pages may lie apart, a row is dense."""
    shape = tuple(cache.shape)
    fits = cache.dim() == 3 and shape[1:] == (page, width)
    require(fits, function, argument, f"{shape}, expected [pages, {page}, {width}]", rule="shape")
    require(cache.stride(-1) == 1, function, argument, f"has last stride {cache.stride(-1)}, expected 1", rule="stride")
    require(
        dtype is None or cache.dtype == dtype, function, argument, f"is {cache.dtype}, expected {dtype}", rule="dtype"
    )


def check_narrow(function: str, argument: str, tensor: torch.Tensor) -> None:
    """Of fp8 the kernels for latent attention are built for e4m3 alone."""
    wrong = tensor.dtype.itemsize == 1 and tensor.dtype != torch.float8_e4m3fn
    require(not wrong, function, argument, f"is {tensor.dtype}; of fp8 the kernel takes e4m3 alone", rule="dtype")


def answer_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a kernel answers queries of ``dtype`` in: those of fp8 in bfloat16."""
    return torch.bfloat16 if dtype.itemsize == 1 else dtype


def check_output(function: str, out: torch.Tensor | None, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """What the answer goes to: ``out`` where it is given and fits, else memory of nobody, NaN."""
    if out is None:
        return torch.full(shape, float("nan"), dtype=like.dtype, device=like.device)
    given = tuple(out.shape)
    require(given == shape, function, "out", f"{given}, expected {shape}", rule="shape")
    require(out.dtype == like.dtype, function, "out", f"is {out.dtype}, expected {like.dtype}", rule="dtype")
    return out
