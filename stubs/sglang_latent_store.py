"""SGLang's store of latent KV by the Triton kernel that a GPU has it from, not by the fallback of platforms without one.

The fallback (0.5.22 on) picks rows by a mask, which reads the mask on the host: no graph could be captured over it. A GPU
of SM90 or later has another kernel yet (0.5.12 on), in CUDA, which nothing here stands in for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import msgspec

from stubs.sglang import find, load

STORE = "sglang.kernels.ops.kvcache.mla_buffer"
WRITE = "_set_mla_kv_buffer_impl"
# Kernels that run here in another's place -> where the other one runs: to be said with what they do wrong.
IN_ANOTHERS_PLACE = {
    "set_mla_kv_buffer_kernel": "from SM90 on SGLang (0.5.12 and later) stores by a CUDA kernel, set_mla_kv_buffer.cuh",
}


def store_by_triton() -> None:
    """Where the release asks its platform before it writes; a second call changes nothing."""
    write = find(f"{STORE}:{WRITE}")
    if write is None or hasattr(write, "__wrapped__") or find(f"{STORE}:set_mla_kv_buffer_naive") is None:
        return
    module: Any = load(STORE)
    setattr(module, WRITE, _with_triton(write))
    module.is_arch_support_pdl = _no  # as below SM90: nothing overlaps here, and the CUDA kernel cannot be had


def _with_triton(write: Callable[..., None]) -> Callable[..., None]:
    @wraps(write)
    def written(*args: Any, **options: Any) -> None:
        platform = find("sglang.srt.platforms:current_platform")
        stock = platform.capabilities
        platform.capabilities = msgspec.structs.replace(stock, supports_triton=True)
        try:
            write(*args, **options)
        finally:
            platform.capabilities = stock

    return written


def _no() -> bool:
    return False
