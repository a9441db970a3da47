"""What a campaign is asked to do, what it answers, and whom it tells meanwhile."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fuzz.limits import Limits, LimitsError
from fuzz.process import Ready
from fuzz.record import Record
from fuzz.worker import EXECUTOR
from stubs.world_rules import DEVICES, RUNNERS

ATHERIS = "atheris"
ENGINES = ("random", "exhaustive", ATHERIS)
HARNESS = "fuzz.harness"  # what watches the target's code for it; named only, since it imports torch


class CampaignError(ValueError):
    """Options that no campaign can be run with; the message says what was given and what was expected."""


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """``pairs`` empty means all that run on the target. At least one of ``seconds`` and ``programs`` ends it.

    ``twins`` lets both halves of a pair have one name. ``program_seconds`` is how long a program may take before
    it counts as hung, ``corrupt`` ends each program in a step whose input is corrupted, ``memory_mb`` is how much
    memory a worker may have (0: see ``fuzz.memory``). ``since`` is the out folder of an earlier run, whose findings are
    looked after. ``executor`` names what the workers run programs with (see ``fuzz.worker.Executor``). Of ``shards``
    campaigns that share one's programs this is number ``shard``.
    """

    target: str
    repros: Path
    out: Path
    python: str
    pairs: tuple[str, ...] = ()
    runner: str = "fake"
    device: str = "cpu"
    engine: str = "random"
    seconds: float | None = None
    programs: int | None = None
    workers: int = 1
    seed: int = 0
    known: Path | None = None
    since: Path | None = None
    twins: bool = False
    corrupt: bool = False
    shrink: bool = True
    program_seconds: float = 120.0
    memory_mb: int = 0
    executor: str = EXECUTOR
    corpus: Path | None = None
    shard: int = 0
    shards: int = 1

    @property
    def corpus_folder(self) -> Path:
        """What engine atheris builds on: ``corpus``, by default one of this campaign's own."""
        return self.corpus or self.out / "corpus"

    @property
    def runs_with(self) -> str:
        """The executor of the workers: the usual one, where the engine has to be told what ran, is told by another."""
        return HARNESS if (self.engine, self.executor) == (ATHERIS, EXECUTOR) else self.executor

    @property
    def command(self) -> str:
        """The command line that tests the same programs again. Paths and budget, which change none, are left out."""
        words = ["seamripper", "run", "--target", self.target, "--seed", str(self.seed)]
        for pair in self.pairs:
            words += ["--pair", pair]
        usually = (("runner", self.runner, "fake"), ("device", self.device, "cpu"), ("engine", self.engine, "random"))
        for name, value, usual in usually:
            words += [f"--{name}", value] if value != usual else []
        switches = ["--twins"] * self.twins + ["--corrupt"] * self.corrupt
        return shlex.join([*words, *switches])

    def check(self) -> None:
        """Raise CampaignError on the first rule broken."""
        if self.seconds is None and self.programs is None:
            raise CampaignError("neither seconds nor programs given; expected at least one of them to end the campaign")
        for name, value in (("seconds", self.seconds), ("programs", self.programs), ("workers", self.workers)):
            if value is not None and value <= 0:
                raise CampaignError(f"{name} is {value}; expected more than 0")
        for name, text, allowed in (
            ("runner", self.runner, RUNNERS),
            ("device", self.device, DEVICES),
            ("engine", self.engine, ENGINES),
        ):
            if text not in allowed:
                raise CampaignError(f"{name} is {text!r}; expected one of {', '.join(allowed)}")
        if self.corrupt and (self.runner, self.engine) != ("fake", "random"):
            raise CampaignError(
                f"corrupt with runner {self.runner} and engine {self.engine}; expected the fake runner and engine random"
            )
        if self.corpus is not None and self.engine != ATHERIS:
            raise CampaignError(
                f"corpus given with engine {self.engine}; expected engine {ATHERIS}, which builds on it"
            )
        if self.seed < 0:
            raise CampaignError(f"seed is {self.seed}; expected 0 or more")
        if self.pairs:
            self.limits(self.pairs, None)

    def choose(self, pairs: dict[str, str]) -> tuple[str, ...]:
        """The pairs asked for, each of which must run (CampaignError); else all that do, without twins unless asked.

        ``pairs`` maps each pair to "" or the reason why it does not run.
        """
        for pair in self.pairs:
            if pair not in pairs:
                raise CampaignError(
                    f"pair {pair!r} is unknown to this target; expected one of {', '.join(sorted(pairs))}"
                )
            if pairs[pair]:
                raise CampaignError(f"pair {pair!r} cannot run on this target here: {pairs[pair]}")
        if self.pairs:
            return self.pairs
        return tuple(pair for pair, reason in sorted(pairs.items()) if not reason and self._wants(pair))

    def refused(self, pairs: dict[str, str]) -> dict[str, str]:
        """Of all pairs, where none was asked for, those that do not run, each with the reason."""
        return {} if self.pairs else {pair: why for pair, why in sorted(pairs.items()) if why and self._wants(pair)}

    def _wants(self, pair: str) -> bool:
        return self.twins or len(set(pair.split(":"))) == 2

    def limits(self, pairs: tuple[str, ...], speculative: Mapping[str, Mapping[str, int]] | None) -> Limits:
        """What programs are generated within; ``speculative`` as Limits has it. Raises CampaignError."""
        try:
            limits = Limits(
                pairs=pairs, runner=self.runner, device=self.device, twins=self.twins, speculative=speculative
            )
            limits.check()
        except LimitsError as error:
            raise CampaignError(str(error)) from None
        return limits


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """``findings`` are those seen in this campaign, as findings.jsonl holds them. ``exit_code`` is 0, 1 or 3.

    ``reason`` says in a line why a campaign could not run or ended early; empty otherwise. ``known`` are the known
    faults, each with how it stands, as known.jsonl holds them, ``since`` the same of what an earlier run found.
    """

    findings: list[dict[str, Any]]
    programs: int
    steps: int
    exit_code: int
    out: Path
    scripts: tuple[Path, ...]
    interrupted: bool
    reason: str
    known: tuple[dict[str, Any], ...] = ()
    since: tuple[dict[str, Any], ...] = ()


class Progress(Protocol):
    """Told what goes on, from one thread at a time."""

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None: ...
    def program_done(self, record: Record) -> None: ...
    def finding(self, finding: dict[str, Any]) -> None: ...
    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self, result: CampaignResult) -> None: ...
