"""Stand-ins for the closed kernels that make fp8 of queries and of latent rows: by one scale, or turned by position first.

Signatures are those of SGLang's per_tensor_quant_fp8 and of flashinfer 0.6.8 to 0.7.2's mla_rope_quantize_fp8; the contract
is read from both Python wrappers and from SGLang's calls, not checked against the kernels. Difference: float32 is allowed.
"""

from __future__ import annotations

import torch

from stubs.kernels.contract import ContractBreach, require, require_absent
from stubs.kernels.door import closed_kernel

STATIC = "per_tensor_quant_fp8"
ROPE = "mla_rope_quantize_fp8"


def narrowed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``values`` in ``dtype``, the largest where they are larger: a GPU saturates (cvt.rn.satfinite)."""
    most = torch.finfo(dtype).max
    return values.float().clamp(-most, most).to(dtype)


@closed_kernel
def per_tensor_quant_fp8(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    is_static: bool = False,
) -> None:
    """``input`` over the scale ``output_s``, one float32, into ``output_q`` of its shape in e4m3; all of them dense.

    Raises ContractBreach, and StandInGap where the kernel is to find the scale, which attention never asks for.
    """
    require_absent(STATIC, is_static=None if is_static else False)
    for name, tensor in (("input", input), ("output_q", output_q), ("output_s", output_s)):
        require(
            tensor.is_contiguous(), STATIC, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
        )
    shape, wanted = tuple(output_q.shape), tuple(input.shape)
    require(shape == wanted, STATIC, "output_q", f"{shape}, expected {wanted}", rule="shape")
    narrow = output_q.dtype == torch.float8_e4m3fn
    require(narrow, STATIC, "output_q", f"is {output_q.dtype}, expected torch.float8_e4m3fn", rule="dtype")
    fits = output_s.numel() == 1 and output_s.dtype == torch.float32
    require(fits, STATIC, "output_s", f"{tuple(output_s.shape)} of {output_s.dtype}, expected one float32")
    output_q.copy_(narrowed(input.float() / output_s.view(()), output_q.dtype))


@closed_kernel
def mla_rope_quantize_fp8(
    q_rope: torch.Tensor,
    k_rope: torch.Tensor,
    q_nope: torch.Tensor,
    k_nope: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    pos_ids: torch.Tensor,
    is_neox: bool = True,
    quantize_dtype: torch.dtype | None = None,
    quant_scale_q: float = 1.0,
    quant_scale_kv: float = 1.0,
    q_rope_out: torch.Tensor | None = None,
    k_rope_out: torch.Tensor | None = None,
    q_nope_out: torch.Tensor | None = None,
    k_nope_out: torch.Tensor | None = None,
    enable_pdl: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both ``rope`` parts [T, heads, R] or [T, R], turned by position, and both others [T, heads, C] or [T, C], in fp8.

    ``cos_sin_cache`` float32 [positions, R]: cosines, then sines; ``pos_ids`` int [T]. Answers go to what is given for
    them. Returns them in the order of the outputs. Raises ContractBreach.
    """
    dtype = quantize_dtype or next((one.dtype for one in (q_rope_out, k_rope_out) if one is not None), None)
    dtype = dtype or torch.float8_e4m3fn
    turns = _turns(cos_sin_cache, pos_ids, len(q_rope), q_rope.shape[-1])
    parts = {"q_rope": q_rope, "k_rope": k_rope, "q_nope": q_nope, "k_nope": k_nope}
    outs = {"q_rope": q_rope_out, "k_rope": k_rope_out, "q_nope": q_nope_out, "k_nope": k_nope_out}
    answers = []
    for name, part in parts.items():
        _check_part(name, part, q_rope)
        value = _turned(part.float(), turns, is_neox=is_neox) if name.endswith("rope") else part.float()
        out = _check_out(f"{name}_out", outs[name], part, dtype)
        scale = quant_scale_q if name.startswith("q") else quant_scale_kv
        answers.append(out.copy_(narrowed(value * scale, dtype)))
    return answers[0], answers[1], answers[2], answers[3]


def _turns(cache: torch.Tensor, positions: torch.Tensor, tokens: int, width: int) -> torch.Tensor:
    """[T, R]: the cosines and sines of each token."""
    shape = tuple(cache.shape)
    require(len(shape) == 2 and shape[1] == width, ROPE, "cos_sin_cache", f"{shape}, expected [positions, {width}]")
    dtype = cache.dtype
    require(dtype == torch.float32, ROPE, "cos_sin_cache", f"is {dtype}, expected torch.float32", rule="dtype")
    integers = positions.dtype in (torch.int32, torch.int64)
    require(integers, ROPE, "pos_ids", f"is {positions.dtype}, expected int32 or int64", rule="dtype")
    shape = tuple(positions.shape)
    require(shape == (tokens,), ROPE, "pos_ids", f"{shape}, expected ({tokens},)", rule="shape")
    for token, position in enumerate(positions.tolist()):
        if not 0 <= position < len(cache):
            detail = f"is {position} at token {token}, expected 0..{len(cache) - 1}"
            raise ContractBreach(ROPE, "pos_ids", detail)
    return cache[positions.long()]


def _check_part(name: str, part: torch.Tensor, q_rope: torch.Tensor) -> None:
    """A row a token, of the queries' dtype, dense along its last dimension; of a query a head each, as in ``q_rope``."""
    shape, tokens = tuple(part.shape), len(q_rope)
    wanted = (tokens, q_rope.shape[1]) if name.startswith("q") else (tokens,)
    fits = shape[: len(wanted)] == wanted and len(shape) in (len(wanted) + 1, 3)
    require(fits, ROPE, name, f"{shape}, expected [{', '.join(map(str, wanted))}, width]", rule="shape")
    require(part.stride(-1) == 1, ROPE, name, f"has last stride {part.stride(-1)}, expected 1", rule="stride")
    require(part.dtype == q_rope.dtype, ROPE, name, f"is {part.dtype}, q_rope is {q_rope.dtype}", rule="dtype")
    require(part.dtype.itemsize > 1, ROPE, name, f"is {part.dtype} already", rule="dtype")


def _check_out(name: str, out: torch.Tensor | None, part: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if out is None:
        return torch.empty(part.shape, dtype=dtype, device=part.device)
    shape, wanted = tuple(out.shape), tuple(part.shape)
    require(shape == wanted, ROPE, name, f"{shape}, expected {wanted}", rule="shape")
    require(out.dtype == dtype, ROPE, name, f"is {out.dtype}, expected {dtype}", rule="dtype")
    require(out.stride(-1) == 1, ROPE, name, f"has last stride {out.stride(-1)}, expected 1", rule="stride")
    return out


def _turned(part: torch.Tensor, turns: torch.Tensor, *, is_neox: bool) -> torch.Tensor:
    """Each pair of columns turned: of neox those half the width apart, else neighbours."""
    cos, sin = (half[:, None] if part.dim() == 3 else half for half in turns.chunk(2, dim=-1))
    if is_neox:
        one, other = part.chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
    one, other = part[..., 0::2], part[..., 1::2]
    return torch.stack([one * cos - other * sin, other * cos + one * sin], dim=-1).flatten(-2)
