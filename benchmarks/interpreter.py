"""Speed of the interpreter on SGLang's own kernels: stock, fast, and fast with the memory checker.

    python benchmarks/interpreter.py --sglang FOLDER [--rounds N]

FOLDER holds an unpacked ``sglang/``. The three take turns on each shape, N rounds long, so that what else the machine
does hits all alike; the table gives median CPU seconds of a call and their ratios. CPU time and not wall time, because
the interpreter is one thread and waits for nothing. The first call of each mode on a shape is not counted: compiling
replays is paid once in a worker's life.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

Call = Callable[[], Any]  # runs a kernel and returns the tensor that it filled

# (heads, kv heads, head dim, lengths): one request, a few, grouped heads, and as much as a campaign's largest.
SHAPES = (
    (2, 1, 16, (9,)),
    (2, 1, 16, (17, 40)),
    (4, 2, 32, (17, 40)),
    (2, 2, 16, (1, 64, 33, 5)),
    (4, 1, 64, (100, 7, 64)),
)
SLOTS = 256
SPLITS = 2


def decode_call(forward: Any, torch: Any, heads: int, kv_heads: int, dim: int, lengths: tuple[int, ...]) -> Call:
    """decode_attention_fwd: one query a request over its rows of a shuffled pool."""
    k_buffer, v_buffer, indptr, indices = _pool(torch, kv_heads, dim, lengths)
    batch = len(lengths)
    q, o = torch.randn(batch, heads, dim), torch.empty(batch, heads, dim)
    logits, lse = torch.empty(batch, heads, SPLITS, dim), torch.empty(batch, heads, SPLITS)
    splits = torch.full((batch,), SPLITS, dtype=torch.int32)
    arguments = (q, k_buffer, v_buffer, o, indptr, indices, logits, lse, splits, SPLITS, dim**-0.5, 1.0, 1.0)

    def call() -> Any:
        forward(*arguments)
        return o

    return call


def extend_call(forward: Any, torch: Any, heads: int, kv_heads: int, dim: int, lengths: tuple[int, ...]) -> Call:
    """extend_attention_fwd: half of each request is cached, half is new."""
    cached = tuple(length // 2 for length in lengths)
    fresh = [length - half for length, half in zip(lengths, cached, strict=True)]
    k_buffer, v_buffer, indptr, indices = _pool(torch, kv_heads, dim, cached)
    total = sum(fresh)
    q, o = torch.randn(total, heads, dim), torch.empty(total, heads, dim)
    k, v = torch.randn(total, kv_heads, dim), torch.randn(total, kv_heads, dim)
    rows = torch.tensor([0, *accumulate(fresh)], dtype=torch.int32)
    arguments = (q, k, v, o, k_buffer, v_buffer, rows, indptr, indices, None, True, None, max(fresh), 1.0, 1.0)

    def call() -> Any:
        forward(*arguments)
        return o

    return call


def _pool(torch: Any, kv_heads: int, dim: int, lengths: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    k_buffer, v_buffer = torch.randn(SLOTS, kv_heads, dim), torch.randn(SLOTS, kv_heads, dim)
    indptr = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return k_buffer, v_buffer, indptr, torch.randperm(SLOTS)[: sum(lengths)]


def measure(call: Call, rounds: int) -> dict[str, float]:
    """Median CPU seconds of a call in each mode; raises if the modes' results differ in any bit."""
    from stubs import interpreter

    modes = {"stock": nullcontext, "fast": interpreter.fast, "checked": interpreter.checked}
    seconds: dict[str, list[float]] = {name: [] for name in modes}
    results = {}
    for round_ in range(rounds):
        for name, mode in modes.items():
            with mode():
                if round_ == 0:
                    call()
                start = time.process_time()
                results[name] = call().clone()
                seconds[name].append(time.process_time() - start)
    if not all(result.equal(results["stock"]) for result in results.values()):
        raise AssertionError("the modes gave different results")
    return {name: statistics.median(values) for name, values in seconds.items()}


def kernels(torch: Any) -> dict[str, Callable[..., Call]]:
    """The two kernels of the release on sys.path; their module moved between releases."""
    folders = ("sglang.kernels.ops.attention", "sglang.srt.layers.attention.triton_ops")
    folder = next((folder for folder in folders if _exists(folder)), None)
    if folder is None:
        raise SystemExit(f"the given release has its kernels in none of {folders}")
    decode = import_module(f"{folder}.decode_attention").decode_attention_fwd
    extend = import_module(f"{folder}.extend_attention").extend_attention_fwd
    return {
        "decode": lambda *shape: decode_call(decode, torch, *shape),
        "extend": lambda *shape: extend_call(extend, torch, *shape),
    }


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of the Triton interpreter: stock, fast, fast with the checker")
    parser.add_argument("--sglang", required=True, type=Path, help="folder that holds an unpacked sglang/")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if not (options.sglang / "sglang").is_dir():
        parser.error(f"{options.sglang} holds no sglang/; give the folder of an unpacked release")

    os.environ["TRITON_INTERPRET"] = "1"
    sys.path[:0] = [str(options.sglang.resolve()), str(Path(__file__).resolve().parent.parent)]
    import torch

    from stubs.imports import install

    install()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("kernel heads/kv dim lengths           stock ms   fast ms  checked ms  stock/fast  checked/fast")
    speedups, costs = [], []
    for kernel, make in kernels(torch).items():
        for heads, kv_heads, dim, lengths in SHAPES:
            times = measure(make(heads, kv_heads, dim, lengths), options.rounds)
            speedups.append(times["stock"] / times["fast"])
            costs.append(times["checked"] / times["fast"])
            shape = f"{kernel:6} {heads:5}/{kv_heads:<2} {dim:3} {','.join(map(str, lengths)):16}"
            milliseconds = "  ".join(f"{1000 * times[name]:9.2f}" for name in times)
            print(f"{shape}  {milliseconds}  {speedups[-1]:10.1f}  {costs[-1]:12.2f}")
    print(f"median: stock/fast {statistics.median(speedups):.1f}, checked/fast {statistics.median(costs):.2f}")


if __name__ == "__main__":
    main()
