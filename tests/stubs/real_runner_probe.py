"""Builds real runners one after another on the SGLang in the folder given, and prints what a test wants to know.

Run by test_real_runner.py in a process of its own: a process holds one release.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

PLAIN = {"prefill": "triton", "decode": "torch_native", "runner": "real"}
EAGLE = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 1, "spec_draft_tokens": 3}
OPS = ('{"op":"extend","rows":[{"request":0,"tokens":3}]}', '{"op":"decode","requests":[0]}', '{"op":"idle"}')


def main() -> None:
    from stubs import imports, sglang, sglang_platform

    imports.install()
    sglang.load("sglang.srt.layers.attention.hybrid_attn_backend")
    sglang_platform.prepare_platform()
    print(json.dumps({name: ask() for name, ask in QUESTIONS.items()}))


def _pairs() -> list[list[str]]:
    from stubs.real_runner import build_real_runner
    from stubs.world import World

    found = []
    for prefill, decode, more in (("triton", "fa3", {}), ("fa3", "torch_native", EAGLE)):
        runner = build_real_runner(World(**PLAIN | {"prefill": prefill, "decode": decode} | more))  # type: ignore[arg-type]
        parts = (runner.attn_backend, runner.attn_backend.prefill_backend, runner.attn_backend.decode_backend)
        found.append([type(part).__name__ for part in parts])
    return found


def _geometry() -> dict[str, Any]:
    """The second of two different worlds, built without closing the first."""
    from stubs.real_runner import build_real_runner
    from stubs.world import World

    build_real_runner(World(**PLAIN))  # type: ignore[arg-type]
    sizes = {"num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "page_size": 4, "max_total_tokens": 64}
    runner = build_real_runner(World(**PLAIN | sizes))  # type: ignore[arg-type]
    pool = runner.token_to_kv_pool
    layer = runner.radix_layers[0]
    return {
        "layers": [layer.layer_id for layer in runner.radix_layers],
        "pool": list(pool.k_buffer[2].shape),
        "free": runner.token_to_kv_pool_allocator.available_size(),
        "heads": [layer.tp_q_head_num, layer.tp_k_head_num, layer.head_dim],
    }


def _rebuilt() -> list[bool]:
    """A fresh wrapper is another one of the same class, and the runner keeps its own."""
    from stubs.real_runner import build_real_runner
    from stubs.world import World

    runner = build_real_runner(World(**PLAIN))  # type: ignore[arg-type]
    before = runner.attn_backend
    fresh = runner.rebuild_backend()
    return [fresh is not before, type(fresh) is type(before), runner.attn_backend is before]


def _refused() -> str:
    from stubs.real_runner import build_real_runner
    from stubs.refusal import Refused
    from stubs.world import World

    try:
        build_real_runner(World(**PLAIN | {"decode": "no_such_backend"}))  # type: ignore[arg-type]
    except Refused as refusal:
        return refusal.reason
    return "not refused"


def _program() -> list[Any]:
    """The modes and verdicts of a program whose every step is judged against float64."""
    from fuzz.execute import execute
    from fuzz.program import Program, op_from_json
    from stubs.world import World

    ops = tuple(op_from_json(json.loads(text), "probe") for text in OPS)
    trace = execute(Program(World(**PLAIN | {"num_layers": 2}), ops))  # type: ignore[arg-type]
    return [trace.verdict.value, [step.mode for step in trace.steps], [str(f.signature) for f in trace.findings]]


def _growth() -> int:
    """Open files more at the end of twelve worlds than at their start."""
    from stubs.real_runner import build_real_runner
    from stubs.world import World

    counts = []
    for _ in range(12):
        build_real_runner(World(**PLAIN)).close()  # type: ignore[arg-type]
        gc.collect()  # groups of processes are in reference cycles
        counts.append(len(os.listdir("/proc/self/fd")))
    return min(counts[6:]) - min(counts[1:6])


QUESTIONS = {
    "pairs": _pairs,
    "geometry": _geometry,
    "rebuilt": _rebuilt,
    "refused": _refused,
    "program": _program,
    "growth": _growth,
}

if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:]
    main()
