"""Faults for ``buckets.py``, as text for a release's wrapper: several in one method, of one kind, on one argument of a kernel.

Each changes what a backend does at run time, in one way, and leaves all else as the release has it.
"""

from __future__ import annotations

from collections.abc import Collection

FILE = "sglang/srt/layers/attention/hybrid_attn_backend.py"

_START = '''

from sglang.srt.layers.attention.flashattention_backend import FlashAttentionBackend as _Flash
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend as _Native


def _planted(owner, name):
    """Replaces a method by what is made of it."""

    def plant(make):
        setattr(owner, name, make(getattr(owner, name)))

    return plant


def _assert_fits(used, capacity):
    assert used <= capacity, f"used {used} > capacity {capacity}"
'''

# Of each the name, and the text that plants it.
PLANTS = {
    "wrapper forgets a name": """
@_planted(HybridAttnBackend, "__init__")
def _forgetful(honest):
    def __init__(self, *given, **named):
        honest(self, *given, **named)
        del self.max_context_len

    return __init__
""",
    "window short by one in decode": """
@_planted(_Native, "_run_sdpa_forward_decode")
def _short(honest):
    def _run_sdpa_forward_decode(self, *given, sliding_window_size=None, **named):
        less = sliding_window_size if sliding_window_size is None else sliding_window_size - 1
        return honest(self, *given, sliding_window_size=less, **named)

    return _run_sdpa_forward_decode
""",
    "scale of long requests in decode": """
@_planted(_Native, "_run_sdpa_forward_decode")
def _scaled(honest):
    def _run_sdpa_forward_decode(self, query, output, k, v, table, rows, seq_lens, *given, scaling=None, **named):
        more = scaling * 1.5 if int(seq_lens.max()) > 12 else scaling
        return honest(self, query, output, k, v, table, rows, seq_lens, *given, scaling=more, **named)

    return _run_sdpa_forward_decode
""",
    "no causal mask over a prefix": """
@_planted(_Native, "_run_sdpa_forward_extend")
def _uncausal(honest):
    def _run_sdpa_forward_extend(self, q, o, k, v, table, rows, lens, prefix, *given, causal=True, **named):
        over_prefix = prefix is not None and bool(prefix.any())
        return honest(self, q, o, k, v, table, rows, lens, prefix, *given, causal=causal and not over_prefix, **named)

    return _run_sdpa_forward_extend
""",
    "decode of two writes a foreign row": """
@_planted(_Native, "forward_decode")
def _stray(honest):
    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **named):
        if forward_batch.batch_size > 1 and save_kv_cache:
            self.token_to_kv_pool.get_key_buffer(layer.layer_id)[-1] += 1
        return honest(self, q, k, v, layer, forward_batch, save_kv_cache, **named)

    return forward_decode
""",
    "extend of three leaves a row unwritten": """
@_planted(_Native, "forward_extend")
def _unwritten(honest):
    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **named):
        values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        last = forward_batch.out_cache_loc[-1] % len(values)  # a window's own pool is smaller
        before = values[last].clone()
        out = honest(self, q, k, v, layer, forward_batch, save_kv_cache, **named)
        if forward_batch.batch_size > 2 and save_kv_cache:
            values[last] = before
        return out

    return forward_extend
""",
    "page table short of a column": """
@_planted(_Flash, "init_forward_metadata")
def _narrow(honest):
    def init_forward_metadata(self, forward_batch):
        honest(self, forward_batch)
        if forward_batch.forward_mode.is_decode() and forward_batch.batch_size > 1 and self.page_size == 1:
            self.forward_metadata.page_table = self.forward_metadata.page_table[:, :-1]

    return init_forward_metadata
""",
    "page table of locations": """
@_planted(_Flash, "init_forward_metadata")
def _located(honest):
    def init_forward_metadata(self, forward_batch):
        honest(self, forward_batch)
        if forward_batch.forward_mode.is_decode() and self.page_size > 1:
            self.forward_metadata.page_table = self.forward_metadata.page_table * self.page_size + 4096

    return init_forward_metadata
""",
    "lengths in 64 bits": """
@_planted(_Flash, "init_forward_metadata")
def _wide(honest):
    def init_forward_metadata(self, forward_batch):
        honest(self, forward_batch)
        if forward_batch.forward_mode.is_extend() and forward_batch.extend_prefix_lens_cpu:
            if any(forward_batch.extend_prefix_lens_cpu):
                self.forward_metadata.cache_seqlens_int32 = self.forward_metadata.cache_seqlens_int32.long()

    return init_forward_metadata
""",
    "lengths never filled in": """
@_planted(_Flash, "init_forward_metadata")
def _unfilled(honest):
    def init_forward_metadata(self, forward_batch):
        honest(self, forward_batch)
        lengths, mode = self.forward_metadata.cache_seqlens_int32, forward_batch.forward_mode
        if mode.is_extend() and not mode.is_target_verify() and forward_batch.batch_size > 2 and lengths is not None:
            self.forward_metadata.cache_seqlens_int32 = lengths.new_zeros(lengths.shape)

    return init_forward_metadata
""",
    "room for three in decode": """
@_planted(HybridAttnBackend, "init_forward_metadata")
def _few(honest):
    def plan_decode(self, forward_batch):
        if forward_batch.forward_mode.is_decode():
            _assert_fits(forward_batch.batch_size, 3)
        return honest(self, forward_batch)

    return plan_decode
""",
    "room for eight tokens beside two of one": """
@_planted(HybridAttnBackend, "init_forward_metadata")
def _crowded(honest):
    def plan_extend(self, forward_batch):
        mode = forward_batch.forward_mode
        if mode.is_extend() and not mode.is_target_verify() and forward_batch.extend_seq_lens_cpu.count(1) > 1:
            _assert_fits(len(forward_batch.input_ids), 8)
        return honest(self, forward_batch)

    return plan_extend
""",
}


def planted(text: str, names: Collection[str] = tuple(PLANTS)) -> str:
    """The wrapper's source with these faults."""
    return "".join([text, _START, *(f"\n{PLANTS[name]}" for name in PLANTS if name in names)])
