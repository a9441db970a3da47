"""Speed of the interpreter on SGLang's own kernels: stock, fast, fast with bounds, fast with every check.

    python benchmarks/interpreter.py --sglang FOLDER [--rounds N] [--programs N]

FOLDER holds an unpacked ``sglang/``. The modes take turns on each shape, N rounds long, so that what else the machine
does hits all alike; the table gives median CPU seconds of a call and the median
of the rounds' ratios. CPU time and not wall time, because
the interpreter is one thread and waits for nothing. The first call of each mode on a shape is not counted: compiling
replays is paid once in a worker's life. ``bounds`` checks every access against storage, view and holes; ``everything``
also against the rows of each request, and for reads of what nobody wrote.

With ``--programs`` the first N generated programs run too, as a campaign runs them: without checks, with all checks of
kernels, and with the other oracles as well; steps a second of CPU time of each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

MODES = ("stock", "fast", "bounds", "everything")


@dataclass(frozen=True, slots=True)
class Call:
    """``run`` runs a kernel and returns the tensor that it filled; the rest says whose rows of the pool are whose."""

    run: Callable[[], Any]
    k_buffer: Any
    v_buffer: Any
    indptr: Any
    indices: Any


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
    q = torch.randn(batch, heads, dim)
    splits = torch.full((batch,), SPLITS, dtype=torch.int32)

    def run() -> Any:
        o = torch.empty(batch, heads, dim)
        logits, lse = torch.empty(batch, heads, SPLITS, dim), torch.empty(batch, heads, SPLITS)
        forward(q, k_buffer, v_buffer, o, indptr, indices, logits, lse, splits, SPLITS, dim**-0.5, 1.0, 1.0)
        return o

    return Call(run, k_buffer, v_buffer, indptr, indices)


def extend_call(forward: Any, torch: Any, heads: int, kv_heads: int, dim: int, lengths: tuple[int, ...]) -> Call:
    """extend_attention_fwd: half of each request is cached, half is new."""
    cached = tuple(length // 2 for length in lengths)
    fresh = [length - half for length, half in zip(lengths, cached, strict=True)]
    k_buffer, v_buffer, indptr, indices = _pool(torch, kv_heads, dim, cached)
    total = sum(fresh)
    q = torch.randn(total, heads, dim)
    k, v = torch.randn(total, kv_heads, dim), torch.randn(total, kv_heads, dim)
    rows = torch.tensor([0, *accumulate(fresh)], dtype=torch.int32)

    def run() -> Any:
        o = torch.empty(total, heads, dim)
        forward(q, k, v, o, k_buffer, v_buffer, rows, indptr, indices, None, True, None, max(fresh), 1.0, 1.0)
        return o

    return Call(run, k_buffer, v_buffer, indptr, indices)


def _pool(torch: Any, kv_heads: int, dim: int, lengths: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    k_buffer, v_buffer = torch.randn(SLOTS, kv_heads, dim), torch.randn(SLOTS, kv_heads, dim)
    indptr = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return k_buffer, v_buffer, indptr, torch.randperm(SLOTS)[: sum(lengths)]


@contextmanager
def mode_of(name: str, call: Call) -> Iterator[None]:
    from stubs import interpreter, uninitialised
    from stubs.interpreter_log import Batch

    if name == "stock":
        yield
    elif name == "fast":
        with interpreter.fast():
            yield
    elif name == "bounds":
        with interpreter.checked() as log:
            yield
        assert not log.violations, log.violations[0]
    else:
        undo = uninitialised.install()
        try:
            with interpreter.checked(_policies(call), batch=Batch(len(call.indptr) - 1)) as log:
                yield
        finally:
            undo()
        assert not log.violations, log.violations[0]


def _policies(call: Call) -> list[Any]:
    """Each request may read the rows that it holds, and nobody may write any."""
    import numpy as np

    from stubs.interpreter_log import RequestRows, SlotPolicy

    nothing, own = np.zeros(SLOTS, bool), []
    for request, (start, end) in enumerate(pairwise(call.indptr.tolist())):
        mine = nothing.copy()
        mine[call.indices[start:end].numpy()] = True
        own.append(RequestRows(request, mine, nothing))
    anyone = np.logical_or.reduce([rows.readable for rows in own])
    return [SlotPolicy(n, b, anyone, nothing, own) for n, b in (("K", call.k_buffer), ("V", call.v_buffer))]


def measure(call: Call, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of a call in each mode, round by round; raises if the modes' results differ in any bit."""
    seconds: dict[str, list[float]] = {name: [] for name in MODES}
    results = {}
    for round_ in range(rounds):
        for name in MODES:
            with mode_of(name, call):
                if round_ == 0:
                    call.run()
                start = time.process_time()
                results[name] = call.run()
                seconds[name].append(time.process_time() - start)
    if not all(result.equal(results["stock"]) for result in results.values()):
        raise AssertionError("the modes gave different results")
    return seconds


def median_ratio(seconds: dict[str, list[float]], over: str, under: str) -> float:
    """The median of the ratios of each round: what slows the machine slows both."""
    return statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))


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


def kernel_table(torch: Any, rounds: int) -> None:
    print("kernel heads/kv dim lengths           " + " ".join(f"{name + ' ms':>13}" for name in MODES), end="")
    print("  stock/fast  bounds/fast  everything/fast")
    ratios: list[tuple[float, float, float]] = []
    for kernel, make in kernels(torch).items():
        for heads, kv_heads, dim, lengths in SHAPES:
            seconds = measure(make(heads, kv_heads, dim, lengths), rounds)
            stock, bounds, everything = (median_ratio(seconds, name, "fast") for name in MODES if name != "fast")
            ratios.append((stock, bounds, everything))
            shape = f"{kernel:6} {heads:5}/{kv_heads:<2} {dim:3} {','.join(map(str, lengths)):16}"
            milliseconds = " ".join(f"{1000 * statistics.median(seconds[name]):13.2f}" for name in MODES)
            print("{}   {}  {:10.1f}  {:11.2f}  {:15.2f}".format(shape, milliseconds, *ratios[-1]), flush=True)
    medians = [statistics.median(column) for column in zip(*ratios, strict=True)]
    print("median: stock/fast {:.1f}, bounds/fast {:.2f}, everything/fast {:.2f}".format(*medians))


def program_table(count: int) -> None:
    """The first ``count`` programs, each in every mode in turn."""
    from fuzz import execute
    from fuzz.generate import program_for
    from fuzz.limits import Limits
    from fuzz.oracle import ORACLES
    from fuzz.oracle.kernel_watch import KernelWatch

    execute.prepare()
    pairs = ("triton:fa3", "fa3:triton", "triton:torch_native")
    limits = Limits(pairs=pairs, speculative=execute.speculative_modes(pairs))
    watched: Any = KernelWatch.over  # there is no switch for it: a campaign has no use for one
    modes = {"no checks": (lambda watch, plan: nullcontext(), ()), "kernels": (watched, ()), "all": (watched, ORACLES)}
    seconds, steps = dict.fromkeys(modes, 0.0), dict.fromkeys(modes, 0)
    for seed in range(count):
        program = program_for(seed, limits)
        for name, (watch, oracles) in modes.items():
            KernelWatch.over = watch
            if seed == 0:
                execute.execute(program, oracles)
            start = time.process_time()
            trace = execute.execute(program, oracles)
            seconds[name] += time.process_time() - start
            steps[name] += len(trace.steps)
    rates = {name: steps[name] / seconds[name] for name in modes}
    print(f"{count} programs, {steps['all']} steps, steps a second: ", end="")
    print(", ".join(f"{name} {rate:.1f}" for name, rate in rates.items()))
    print(f"kernels checked over not: {rates['no checks'] / rates['kernels']:.2f} times the time")


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of the Triton interpreter: stock, fast, and with checks")
    parser.add_argument("--sglang", required=True, type=Path, help="folder that holds an unpacked sglang/")
    parser.add_argument("--rounds", type=int, default=7, help="0 leaves the kernels out")
    parser.add_argument("--programs", type=int, default=0)
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
    if options.rounds:
        kernel_table(torch, options.rounds)
    if options.programs:
        program_table(options.programs)


if __name__ == "__main__":
    main()
