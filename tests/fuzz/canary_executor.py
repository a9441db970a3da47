"""Runs programs as ``fuzz.execute`` does, on a SGLang with a fault planted in one backend.

torch_native's decode answers 1 too much to a request that has more than three tokens.
"""

from __future__ import annotations

from typing import Any

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from stubs import sglang

available_pairs, speculative_modes, execute = plain.available_pairs, plain.speculative_modes, plain.execute

TOKENS_MAX = 3


def prepare() -> str:
    version = plain.prepare()
    backend = sglang.load(f"{sglang.ATTENTION}.torch_native_backend").TorchNativeAttnBackend
    honest = backend.forward_decode

    def forward_decode(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, **named: Any) -> Any:
        out = honest(self, q, k, v, layer, forward_batch, **named)
        return out + (forward_batch.seq_lens > TOKENS_MAX)[:, None].to(out.dtype)

    backend.forward_decode = forward_decode
    return version
