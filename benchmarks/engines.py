"""How soon an engine comes to a fault: random, atheris and exhaustive here, Hypothesis's state machines, atheris on raw bytes.

    python benchmarks/engines.py --sglang FOLDER [--seeds N] [--seconds N] [--engines NAME ...] [--json FILE]

FOLDER holds an unpacked ``sglang/``. Faults of three depths (``planted_steps.py``) are put into a scratch copy of its
wrapper; every engine drives that, through the same fake runner in one plain world (exhaustive in its own small ones), without
oracles, which cost all the same. A run of a seed ends when all three have shown, or after ``--seconds`` of CPU time.
Engines take turns, one process each, forked from one that has imported SGLang, so that what else the machine does hits
all alike. Counted are programs (a machine's or an input's run is one) and CPU seconds, the engine's own work included.

The table gives, over the seeds, how many runs came to a fault, the medians with a 95 % interval of order statistics, and the
one-sided p of Mann-Whitney's test that our atheris needs fewer than that engine. A run that did not come to it counts as
longer than any that did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from planted_steps import FAULTS, FILE, MODULE, SHOWN, planted
from scipy.stats import binom, mannwhitneyu

PAIR = "torch_native:fa3"  # no Triton kernel, whose interpreter takes most of a program's time
SUBJECT = "atheris"
ENGINES = ("random", SUBJECT, "exhaustive", "hypothesis", "raw bytes")


@dataclass(slots=True)
class Outcome:
    """``found``: fault -> (programs, CPU seconds) when it first showed; ``programs`` and ``seconds`` of the whole run."""

    engine: str
    seed: int
    programs: int = 0
    seconds: float = 0.0
    found: dict[str, tuple[int, float]] = field(default_factory=dict)


class Clock:
    """Ends the process, its outcome written, when all faults have shown or the time is up."""

    def __init__(self, outcome: Outcome, seconds: float, write: Callable[[Outcome], None]) -> None:
        self.outcome, self._seconds, self._write = outcome, seconds, write
        self._shown: set[str] = getattr(sys.modules[MODULE], SHOWN)
        self._shown.clear()
        self._begun = time.process_time()

    def program_ended(self) -> None:
        outcome = self.outcome
        outcome.programs += 1
        outcome.seconds = time.process_time() - self._begun
        for fault in self._shown:
            outcome.found.setdefault(fault, (outcome.programs, outcome.seconds))
        if len(outcome.found) == len(FAULTS) or outcome.seconds >= self._seconds:
            self.end()

    def end(self) -> None:
        self._write(self.outcome)
        os._exit(0)


def drive(clock: Clock, folder: Path) -> None:
    """Run one engine in this process until the clock ends it."""
    from rivals import drive_bytes, drive_machine

    from fuzz import execute, harness
    from fuzz.agenda import SEED_STRIDE
    from fuzz.engines import Exhaustive, Random
    from fuzz.guided import Guided
    from fuzz.limits import Limits
    from stubs.world import World

    prefill, _, decode = PAIR.partition(":")
    world = World(prefill=prefill, decode=decode)
    limits = Limits(pairs=(PAIR,), worlds=(world,))
    engine_name, seed = clock.outcome.engine, clock.outcome.seed

    def run(program: Any) -> Any:
        trace = harness.execute(program, ())
        clock.program_ended()
        return trace

    if engine_name == "hypothesis":

        def start(program: Any) -> Any:
            begun = execute._Run(program, ())
            begun.start()
            return begun

        return drive_machine(world, start, clock.program_ended, seed)
    if engine_name == "raw bytes":
        from atheris import native

        setattr(harness.atheris, harness.CALL, getattr(native, harness.CALL))  # blocks are libFuzzer's affair now
        return drive_bytes(harness.atheris, limits, run, seed)
    engines: dict[str, Callable[[], Any]] = {
        "random": lambda: Random(limits),
        SUBJECT: lambda: Guided(limits, folder, "planted", print),
        "exhaustive": lambda: Exhaustive(Limits(pairs=(PAIR,), speculative={PAIR: {}}), seed),
    }
    engine = engines[engine_name]()
    for number in range(SEED_STRIDE):
        program = engine.program(seed * SEED_STRIDE + number)
        if program is None:
            break
        engine.learn(program, run(program))
    clock.end()


def run_forked(engine: str, seed: int, seconds: float, scratch: Path) -> Outcome:
    """One run in a process of its own."""
    report, folder = scratch / "outcome.json", scratch / "corpus"
    report.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    pid = os.fork()
    if pid == 0:
        silence = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            outcome = Outcome(engine, seed)
            drive(Clock(outcome, seconds, lambda done: _write(report, done)), folder)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stderr.flush()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if status or not report.exists():
        last = "\n".join((scratch / "log").read_text(errors="replace").splitlines()[-20:])
        raise SystemExit(f"{engine} with seed {seed} ended with {status} and no outcome:\n{last}")
    return _read(report.read_text())


def _read(text: str) -> Outcome:
    data = json.loads(text)
    return Outcome(**{**data, "found": {name: tuple(at) for name, at in data["found"].items()}})


def earlier(path: Path | None, engines: Sequence[str], seeds: int) -> list[Outcome]:
    """The runs of these that ``path`` has already."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return [one for one in map(_read, lines) if one.engine in engines and one.seed < seeds]


def _write(path: Path, outcome: Outcome) -> None:
    path.write_text(json.dumps(asdict(outcome)))


def turns(engines: Sequence[str], seeds: int) -> Iterator[tuple[str, int]]:
    """Each engine once a seed, another one first each time."""
    for seed in range(seeds):
        first = seed % len(engines)
        yield from ((engine, seed) for engine in (*engines[first:], *engines[:first]))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and order statistics between which the true one lies with at least 95 %, as far as there are enough."""
    ordered = sorted(values)
    count = len(ordered)
    # The k-th from either end, for the highest k that the true median lies outside of one time in forty at most.
    place = max((k for k in range(1, count // 2 + 1) if binom.cdf(k - 1, count, 0.5) <= 0.025), default=1)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return middle, ordered[place - 1], ordered[count - place]


def table(outcomes: Sequence[Outcome], engines: Sequence[str]) -> list[str]:
    """A line for each fault and engine."""
    lines = [f"{'fault':15} {'engine':11} {'found':>6}  {'programs':>20} {'p':>7}  {'CPU seconds':>22} {'p':>7}"]
    for fault in FAULTS:
        for engine in engines:
            ours = [one for one in outcomes if one.engine == engine]
            cells = []
            for at, form in ((0, "{:.0f}"), (1, "{:.1f}")):
                values = _reached(outcomes, engine, fault, at)
                shown = [form.format(value) if value < inf else "never" for value in interval(values)]
                p = _p(_reached(outcomes, SUBJECT, fault, at), values) if engine != SUBJECT else ""
                cells += [f"{shown[0]} ({shown[1]} to {shown[2]})", p]
            found = f"{sum(fault in one.found for one in ours)}/{len(ours)}"
            lines.append(
                f"{fault:15} {engine:11} {found:>6}  {cells[0]:>20} {cells[1]:>7}  {cells[2]:>22} {cells[3]:>7}"
            )
    return lines


def _reached(outcomes: Sequence[Outcome], engine: str, fault: str, at: int) -> list[float]:
    """When each run came to the fault; infinite for one that did not."""
    return [one.found[fault][at] if fault in one.found else inf for one in outcomes if one.engine == engine]


def _p(subject: Sequence[float], other: Sequence[float]) -> str:
    if not subject or not other:
        return ""
    # Ranks are all that counts: any number above all others stands for a run that did not come to it.
    finite = [[value if value < inf else 1e18 for value in values] for values in (subject, other)]
    return f"{mannwhitneyu(*finite, alternative='less').pvalue:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sglang", type=Path, required=True, help="folder that holds sglang/")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=24, help="CPU seconds of a run, at most")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--json", type=Path, help="where every run goes, a line each; those it has are not run again")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        from fuzz.scratch import lay_out

        lay_out(options.sglang, scratch / "target", FILE, planted((options.sglang / FILE).read_text()))
        sys.path.insert(0, str(scratch / "target"))
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        print(f"SGLang {import_module('fuzz.harness').prepare()}, faults planted", flush=True)
        import_module("rivals")  # here, so that no run pays for it
        outcomes = earlier(options.json, options.engines, options.seeds)
        done = {(one.engine, one.seed) for one in outcomes}
        for engine, seed in turns(options.engines, options.seeds):
            if (engine, seed) in done:
                continue
            outcome = run_forked(engine, seed, options.seconds, scratch)
            outcomes.append(outcome)
            found = ", ".join(f"{fault} after {at} ({seconds:.1f} s)" for fault, (at, seconds) in outcome.found.items())
            print(
                f"{engine} {seed}: {outcome.programs} programs, {outcome.seconds:.1f} s; {found or 'nothing'}",
                flush=True,
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
    print("\n".join(table(outcomes, options.engines)))


if __name__ == "__main__":
    main()
