"""One repro tried on one target after the other: what it showed where, and whether that is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fuzz.comparison import Cell
from fuzz.revisions.column import Answer, Ask, Column
from fuzz.revisions.compare import run_columns
from fuzz.revisions.progress import Progress
from fuzz.revisions.rig import Rig, Saved
from fuzz.revisions.sample import FLAKY_RUNS, clean_runs_for


@dataclass(slots=True)
class Trial:
    """A held resource: what one repro showed where, and the means to try it on more targets."""

    saved: Saved
    times: int
    rig: Rig
    progress: Progress
    tell: Callable[[str], None]
    answers: dict[str, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take up what an earlier run left."""
        for target, sample in self.progress.samples.items():
            self.answers[target] = Answer(Ask(self.saved, self.times), sample)

    def try_on(self, targets: Sequence[str], jobs: int = 1, *, is_patient: bool = False) -> None:
        """Run it on those that have not answered yet, or in too few runs for what is known of its reliability by now.

        ``is_patient``: the bug is said to be there; so many clean runs are made as would show one that shows rarely.
        """
        asks = [(target, self._ask(target)) for target in targets if self.is_open(target)]
        if is_patient:
            asks = [(target, replace(ask, clean_runs=max(ask.clean_runs or 0, FLAKY_RUNS))) for target, ask in asks]
        columns = run_columns([(target, [ask]) for target, ask in asks], self.rig, jobs, self.tell)
        for (target, ask), got in zip(asks, columns, strict=True):
            answer = got.answers[0] if isinstance(got, Column) else Answer(ask, trouble=str(got))
            self.answers[target] = answer
            if not answer.trouble:
                self.progress.add(target, answer.sample)

    def is_open(self, target: str) -> bool:
        answer = self.answers.get(target)
        return answer is None or (not answer.trouble and self._ask(target).runs_missing(answer.sample) > 0)

    def cell(self, target: str) -> Cell:
        """What it showed there; of no account where it was not tried."""
        return replace(self.answers[target], ask=self._ask(target)).cell(target)

    def mark(self, target: str) -> bool | None:
        return self.cell(target).mark

    def _ask(self, target: str) -> Ask:
        samples = [answer.sample for answer in self.answers.values() if answer.sample.state == "bug"]
        script = self.saved.repro.shown, self.saved.repro.runs
        clean_runs = clean_runs_for(script, [(sample.k, sample.n) for sample in samples])
        before = self.answers.get(target)
        if before is None or before.trouble:
            return Ask(self.saved, self.times, clean_runs)
        return Ask(self.saved, self.times, clean_runs, before.sample)
