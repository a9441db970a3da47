"""One small batch of calls to the flashinfer stand-ins, which tests change one argument of at a time."""

from __future__ import annotations

from typing import Any

import torch

from stubs.kernels.flashinfer_prefill import BatchPrefillWithPagedKVCacheWrapper as Paged


def ints(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32)


def workspace() -> Any:
    return torch.zeros(16, dtype=torch.uint8)


def drawn(*shape: int, seed: int = 7) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


Q = drawn(4, 4, 8, seed=1)
K, V = drawn(8, 2, 2, 8, seed=2), drawn(8, 2, 2, 8, seed=3)
PAGES = {0: [5, 1], 1: [2, 7, 3]}
LENGTHS = {0: 3, 1: 5}


def plan(**changes: Any) -> dict[str, Any]:
    """Two requests of 3 and 5 keys in pages of 2, with 1 and 3 query rows; 4 heads over 2 kv heads, head dim 8."""
    arrays = {"qo_indptr": ints(0, 1, 4), "paged_kv_indptr": ints(0, 2, 5), "paged_kv_indices": ints(5, 1, 2, 7, 3)}
    heads = {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim_qk": 8, "page_size": 2}
    return {**arrays, "paged_kv_last_page_len": ints(1, 1), **heads, "q_data_type": "float32"} | changes


def decode_plan(**changes: Any) -> dict[str, Any]:
    arrays = {"indptr": ints(0, 2, 5), "indices": ints(5, 1, 2, 7, 3), "last_page_len": ints(1, 1)}
    heads = {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_size": 2}
    return {**arrays, **heads, "q_data_type": torch.float32} | changes


def ragged_plan(**changes: Any) -> dict[str, Any]:
    """Packed q of 1 and 3 rows over packed keys of 2 and 4 rows."""
    heads = {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim_qk": 8}
    return {"qo_indptr": ints(0, 1, 4), "kv_indptr": ints(0, 2, 6), **heads, "q_data_type": "float32"} | changes


def planned(**changes: Any) -> Paged:
    wrapper = Paged(workspace())
    wrapper.plan(**plan(**changes))
    return wrapper


def keys_of(request: int) -> tuple[Any, Any]:
    k, v = (torch.cat([cache[page] for page in PAGES[request]])[: LENGTHS[request]] for cache in (K, V))
    return k, v
