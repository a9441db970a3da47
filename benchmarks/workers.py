"""What a second worker is worth: the same programs run by one worker and by two, steps a second against steps a second.

    python benchmarks/workers.py [--target TARGET] [--pair PAIR] [--programs N] [--rounds N] [--seed N]

Each side is a campaign of its own (`seamripper run --no-shrink`), with every oracle on; the sides take turns in who goes
first. Timed is from the begin of the first program to the end of the last one, from the records, with what lies between
programs: journal, records, new processes, looks into findings (so choose a pair and a release that are clean). The ratio is
two workers' steps a second over one worker's, by round and in the median; it cannot be more than the cores that are free.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Side:
    """One campaign: ``seconds`` from the first program's begin to the last one's end."""

    workers: int
    programs: int
    steps: int
    findings: int
    seconds: float

    @property
    def rate(self) -> float:
        """Steps a second."""
        return self.steps / self.seconds


def measured(options: argparse.Namespace, workers: int) -> Side:
    """Run a campaign and read what it wrote."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        command = [
            sys.executable,
            "-m",
            "fuzz",
            "run",
            "--target",
            options.target,
            "--pair",
            options.pair,
            "--no-shrink",
        ]
        command += ["--programs", str(options.programs), "--seed", str(options.seed), "--workers", str(workers)]
        command += ["--out", str(out), "--repros", str(Path(name) / "repros")]
        done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        records = [record for path in sorted(out.glob("records-*.jsonl")) for record in _lines(path)]
        findings = sum(1 for _ in _lines(out / "findings.jsonl"))
    begin = min(record["elapsed_seconds"] - record["seconds"] for record in records)
    end = max(record["elapsed_seconds"] for record in records)
    steps = sum(count for record in records for _, _, count in record["steps"])
    return Side(workers, len(records), steps, findings, end - begin)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="pypi:0.5.23")
    parser.add_argument("--pair", default="flex_attention:cutedsl_mla")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ratios = []
    for number in range(options.rounds):
        order = (1, 2) if number % 2 == 0 else (2, 1)
        sides = {workers: measured(options, workers) for workers in order}
        ratios.append(sides[2].rate / sides[1].rate)
        for workers in (1, 2):
            side = sides[workers]
            print(
                f"round {number}: {workers} worker(s): {side.programs} programs, {side.steps} steps in {side.seconds:.1f} s:"
                f" {side.rate:.1f} steps/s, {side.findings} finding(s)",
                flush=True,
            )
        print(f"round {number}: two workers over one: {ratios[-1]:.2f}", flush=True)
    print(f"two workers over one, median of {options.rounds}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
