"""One bucket per fault? A campaign on a release with several faults, each of whose buckets is then held against each plant.

    python benchmarks/buckets.py --target SPEC [--planted] [--pair P:D ...] [--seconds N] [--seed N] [--workers N] --out FOLDER

With ``--planted`` the faults of ``planted_release.py`` are put into a scratch copy of the release. What a bucket's program
shows there is compared with what it shows where one plant is left out, plant by plant, and on the release itself. So that each
plant has one bucket of its own, beside what follows from that as the report has it, no bucket may be two plants', and each
program shows its own fault and no other but what follows from the same, or lies further from the cause. Buckets that no plant is needed for are the release's own; on a release as it is, without
``--planted``, all are, and only the last is asked. The same command on the same FOLDER goes on, and asks again of what was
found. Exit status: 0 if it is so, 1 if it is not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from planted_release import FILE, PLANTS, planted

from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.confirm import CONFIRM_RUNS, bugs
from fuzz.finding import Signature
from fuzz.launch import WorkerOptions
from fuzz.process import WorkerProcess
from fuzz.program import parse
from fuzz.scratch import lay_out
from fuzz.store import FINDINGS
from fuzz.tally import is_believed
from fuzz.targets import open_target
from reports.causes import follows_of
from reports.load import load_run

PROGRAM_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Bucket:
    """``shown`` is what its program shows; ``owners`` are the plants without any of which it does not show its own fault.

    ``is_whole``: the campaign had the time to confirm and shrink it. ``is_releases``: the release shows it as it is.
    ``kin`` are those that follow from what it follows from itself, as the report has it: one fault, seen in several ways.
    ``follows``: whether it is not the first of them.
    """

    signature: str
    count: int
    is_whole: bool
    shown: tuple[str, ...]
    owners: tuple[str, ...]
    is_releases: bool
    kin: tuple[str, ...] = ()
    follows: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it is one fault's, and shows that alone, or else what lies further from the cause and comes of it."""
        others = {
            one
            for one in self.shown
            if one not in self.kin and Signature.parse(one).rank <= Signature.parse(self.signature).rank
        }
        shows_own = self.signature in self.shown and others <= {self.signature}
        return len(self.owners) + self.is_releases == 1 and (not self.is_whole or shows_own)


class Told:
    """Tells what takes long; the findings are for the table."""

    def started(self, *_: object) -> None:
        pass

    program_done = finding = finished = started

    def phase(self, text: str) -> None:
        print(text, file=sys.stderr)

    note = phase


def shown_on(folder: Path, programs: Sequence[str], scratch: Path) -> list[tuple[str, ...]]:
    """The faults that each program shows on a target. They run one after the other, as in a campaign."""
    scratch.mkdir(parents=True, exist_ok=True)
    shown = []
    with closing(WorkerProcess(WorkerOptions(sys.executable, folder, scratch))) as worker:
        for program in programs:
            trace = worker.run(parse(program), PROGRAM_SECONDS)
            shown.append(tuple(sorted({str(finding.signature) for finding in bugs(trace)})))
    return shown


def laid_out(release: Path, copy: Path, names: Sequence[str]) -> Path:
    """A new copy of the release with these plants."""
    shutil.rmtree(copy, ignore_errors=True)
    lay_out(release, copy, FILE, planted((release / FILE).read_text(), names))
    return copy


def examine(entries: Sequence[dict[str, Any]], release: Path, names: Sequence[str], scratch: Path) -> list[Bucket]:
    """Each bucket's program on the release with all plants and with none; if not its own fault, with all but each plant."""
    programs = [entry["program"] for entry in entries]
    bare = shown_on(release, programs, scratch)
    full = shown_on(laid_out(release, scratch / "full", names), programs, scratch) if names else bare
    planted_ones = [entry for entry, shown in zip(entries, bare, strict=True) if entry["signature"] not in shown]
    owners: dict[str, list[str]] = {entry["signature"]: [] for entry in entries}
    for place, name in enumerate(names):
        print(f"without: {name}", file=sys.stderr)
        folder = laid_out(release, scratch / f"without{place}", [other for other in names if other != name])
        without = shown_on(folder, [entry["program"] for entry in planted_ones], scratch)
        for entry, shown in zip(planted_ones, without, strict=True):
            owners[entry["signature"]] += [name] * (entry["signature"] not in shown)
    return [
        Bucket(
            entry["signature"],
            entry["count"],
            entry["examined"] and entry["reliability"][0] > 0 and entry["reliability"][1] == CONFIRM_RUNS,
            full[place],
            tuple(owners[entry["signature"]]),
            entry not in planted_ones,
        )
        for place, entry in enumerate(entries)
    ]


def with_kin(buckets: Sequence[Bucket], follows: Mapping[str, str]) -> list[Bucket]:
    """``follows`` maps a signature to the one that it follows from, "" if from none."""
    roots = {bucket.signature: follows.get(bucket.signature) or bucket.signature for bucket in buckets}
    return [
        replace(
            one,
            kin=tuple(name for name, root in roots.items() if root == roots[one.signature]),
            follows=bool(follows.get(one.signature)),
        )
        for one in buckets
    ]


def homeless(buckets: Sequence[Bucket], names: Sequence[str]) -> list[str]:
    """The plants that no bucket is of alone: never met, or merged with another."""
    return [name for name in names if all(bucket.owners != (name,) for bucket in buckets)]


def crowded(buckets: Sequence[Bucket], names: Sequence[str]) -> list[str]:
    """The plants that have more than one bucket, not counting what follows from another."""
    owners = [bucket.owners for bucket in buckets if not bucket.follows]
    return [name for name in names if owners.count((name,)) > 1]


def campaign(target: str, out: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """What it found and believes."""
    options = CampaignOptions(
        target,
        out / "repros",
        out / "campaign",
        sys.executable,
        tuple(given.pair),
        seconds=given.seconds,
        programs=given.programs,
        seed=given.seed,
        workers=given.workers,
    )
    run_campaign(options, Told())
    lines = (options.out / FINDINGS).read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if is_believed(entry)]


def table(buckets: Sequence[Bucket]) -> str:
    rows = [f"{'bucket':90}  programs  whose"]
    for bucket in sorted(buckets, key=lambda one: (not one.owners, one.owners, one.signature)):
        whose = " + ".join(bucket.owners) or ("the release" if bucket.is_releases else "nobody's")
        others = [one for one in bucket.shown if one != bucket.signature]
        marks = ["not shrunk"] * (not bucket.is_whole) + [f"shows {', '.join(others)}, too"] * bool(others)
        marks += ["does not show"] * (bucket.signature not in bucket.shown)
        rows.append(f"{bucket.signature:90}  {bucket.count:8}  {'; '.join([whose, *marks])}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", required=True, metavar="SPEC")
    parser.add_argument("--planted", action="store_true", help="put the faults of planted_release.py into a copy of it")
    parser.add_argument("--plant", action="append", choices=list(PLANTS), default=[], help="only these of them")
    parser.add_argument("--pair", action="append", default=[], metavar="PREFILL:DECODE")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--programs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    names = (given.plant or list(PLANTS)) if given.planted or given.plant else []
    with open_target(given.target) as target:
        release = target.folder
        if release is None:
            parser.error(f"--target is {given.target}; expected one with a folder, such as pypi:0.5.23")
        planted_at = laid_out(release, given.out / "target", names) if names else release
        entries = campaign(f"path:{planted_at}", given.out, given)
        buckets = examine(entries, release, names, given.out / "scratch")
    findings = load_run(given.out / "campaign").findings
    follows = dict(zip(findings["signature"], follows_of(findings), strict=True))
    buckets = with_kin(buckets, follows)
    print(table(buckets))
    lost, several = homeless(buckets, names), crowded(buckets, names)
    wrong = [bucket for bucket in buckets if not bucket.is_own]
    whole = sum(bucket.is_whole for bucket in buckets)
    following = sum(bucket.follows for bucket in buckets)
    print(
        f"{len(buckets)} buckets, {following} of which follow from another, {whole} shrunk; "
        f"{len(names) - len(lost)} of {len(names)} plants have their own, {len(several)} more than one"
    )
    for name in lost:
        print(f"no bucket of its own: {name}")
    for name in several:
        print(f"several buckets: {name}")
    for bucket in wrong:
        print(f"not one fault's alone: {bucket.signature}")
    return int(bool(lost or several or wrong))


if __name__ == "__main__":
    sys.exit(main())
