"""The progress of a campaign for people: a display that redraws itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fuzz import corpus
from fuzz.finding import CORRUPT, Signature, Verdict
from fuzz.order import ATHERIS, CampaignOptions, CampaignResult
from fuzz.process import Ready
from fuzz.record import Record
from fuzz.tally import is_believed

PLAIN_SECONDS = 10  # between two lines in a log: six a minute tell that it lives and do not drown the rest
PHASE_SECONDS = 1  # what is over sooner needs no line
PLAIN_COLUMNS = 160  # of a table that goes to a file or a pipe, where no terminal says how wide it is
BAR_COLUMNS = 40
CORPUS_SECONDS = 2  # between two counts of a corpus's files, which may be a network's
QUIET_SECONDS = 15  # of a worker that ends no program: programs take a second or two
DISMISSED = "dismissed"  # by its control: no finding

STYLES = {
    "ok": "green",
    "clean": "green",
    "fixed": "green",
    "can be built": "green",
    "real": "green",
    "bug": "bold red",
    "other": "red",
    "missing": "red",
    "shadowed": "yellow",
    "cannot be built": "red",
    "absent": "red",
    "stood in": "yellow",
    "stub_gap": "yellow",
    "infra": "yellow",
    "unsupported": "dim",
}


def console(*, stderr: bool = False) -> Console:
    """A console that takes no text for markup."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = PLAIN_COLUMNS
    return made


class Display:
    """A campaign's Progress, and what other long work says of itself (``phase``).

    Use it as a context: the terminal is given back whatever happens.
    """

    def __init__(self, to: Console, *, counts_new: bool = True) -> None:
        self._console = to
        self._counts_new = counts_new  # what is new is known at once, and not only at the end
        self._options: CampaignOptions | None = None
        self._phase = ""
        self._later: threading.Timer | None = None
        self._started = self._said = time.monotonic()
        self._ahead = 0.0  # the campaign's clock starts before ``started``: it counts the import
        self._programs = self._steps = self._new = self._known = 0
        self._verdicts: Counter[str] = Counter()
        self._ended: dict[int, float] = {}  # when each worker's last program did
        self._corpus = _Corpus()
        # Last: it renders at once.
        self._live = Live(console=to, get_renderable=self._render, transient=True) if to.is_terminal else None

    def __enter__(self) -> Display:  # noqa: PYI034 - typing.Self came with Python 3.11
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.phase("")
        if self._live:
            self._live.stop()

    def phase(self, text: str) -> None:
        """Show what takes its time now; a log gets a line only if it does take time. Empty: it is over."""
        self._phase = text
        if self._live:
            self._live.refresh()
            return
        if self._later:
            self._later.cancel()
        if text:
            self._later = threading.Timer(PHASE_SECONDS, self._say, [text])
            self._later.daemon = True
            self._later.start()

    def note(self, text: str) -> None:
        """Say something that is to stay."""
        self._say(text)

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None:
        self._options = options
        self.phase("")
        self._started = self._said = time.monotonic()
        self._ahead = ready.import_seconds
        self._ended = dict.fromkeys(range(options.workers), self._started)
        about = f"SGLang {ready.sglang_version}, {options.runner} runner, {', '.join(pairs)}"
        self._say(f"{about} (imported in {ready.import_seconds:.0f} s)")

    def program_done(self, record: Record) -> None:
        self._programs += 1
        self._ahead = record.elapsed_seconds - self._seconds
        self._steps += sum(count for _, _, count in record.steps)
        self._verdicts[record.verdict] += 1
        self._ended[record.worker] = time.monotonic()
        if not self._live and time.monotonic() - self._said >= PLAIN_SECONDS:
            self._said = time.monotonic()
            self._say("; ".join([f"{record.elapsed_seconds:.0f} s: {self._rates()}", self._counts(), *self._means()]))

    def finding(self, finding: dict[str, Any]) -> None:
        self.phase("")
        is_new = is_new_bug(finding)
        self._new += is_new
        self._known += bool(finding["known"])
        label = label_of(finding)
        label = {"new": "new bug", "known": f"known {finding['verdict']}"}.get(label, label)
        is_dim = finding["known"] or label == DISMISSED
        style = "dim" if is_dim else STYLES["infra" if label == CORRUPT else finding["verdict"]]
        title = " ".join(finding["title"].split())
        where = f"({finding['pair']}, {finding['mode']}, after {finding['first_seconds']:.0f} s)"
        self._console.print(Text(label, style), Text(f"{title} {where}"), soft_wrap=True)

    def finished(self, result: CampaignResult) -> None:
        self.phase("")

    @property
    def _seconds(self) -> float:
        """Since the workers were ready: rates do not count the import."""
        return time.monotonic() - self._started

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _rates(self) -> str:
        seconds = max(self._seconds, 0.001)
        return (
            f"{self._programs:,} programs ({self._programs / seconds:.1f}/s), "
            f"{self._steps:,} steps ({self._steps / seconds:.1f}/s)"
        )

    def _counts(self) -> str:
        counts = ", ".join(f"{self._verdicts[v.value]:,} {v.value}" for v in Verdict if self._verdicts[v.value])
        return "; ".join([counts, *self._news()]) if counts else "no program has ended yet"

    def _news(self) -> list[str]:
        if not self._counts_new:
            return []
        return [f"{self._new} new" + (f", {self._known} known" if self._known else "")]

    def _means(self) -> list[str]:
        """What the programs come from and who runs them, where there is something to tell."""
        means = []
        if self._options is not None and self._options.engine == ATHERIS:
            means.append(f"corpus {self._corpus.size(self._options.corpus_folder):,}")
        now = time.monotonic()
        quiet = [now - ended for ended in self._ended.values() if now - ended >= QUIET_SECONDS]
        is_one = len(self._ended) == 1
        if not is_one or quiet or self._live:
            which = "" if is_one else f"{len(quiet)} of them "
            waited = f" ({which}for {max(quiet):.0f} s at one thing)" if quiet else ""
            means.append(("1 worker" if is_one else f"{len(self._ended)} workers") + waited)
        return means

    def _render(self) -> RenderableType:
        if self._options is None:
            return Text(self._phase, "dim")
        grid = Table.grid(padding=(0, 2))
        grid.add_row(self._budget(), Text(self._rates()))
        counts = [
            Text(f"{self._verdicts[v.value]:,} {v.value}", STYLES[v.value]) for v in Verdict if self._verdicts[v.value]
        ]
        told = [*counts, *map(Text, (*self._news(), *self._means()))]
        return Group(grid, Text("  ").join(told), Text(self._phase, "dim"))

    def _budget(self) -> RenderableType:
        """How much of the budget is spent: of the seconds or the programs, whichever will end the campaign first."""
        assert self._options is not None
        parts = [
            (self._seconds + self._ahead, self._options.seconds, "s"),
            (self._programs, self._options.programs, "programs"),
        ]
        done, total, unit = max(((d, t, u) for d, t, u in parts if t), key=lambda part: part[0] / part[1])
        bar = ProgressBar(total=total, completed=min(done, total), width=BAR_COLUMNS)
        row = Table.grid(padding=(0, 1))
        row.add_row(bar, Text(f"{min(done, total):,.0f} of {total:,.0f} {unit}"))
        return row


class _Corpus:
    """The size of a corpus, counted now and then: the display redraws itself four times a second."""

    def __init__(self) -> None:
        self._size, self._counted = 0, -math.inf

    def size(self, folder: Path) -> int:
        if time.monotonic() - self._counted >= CORPUS_SECONDS:
            self._size, self._counted = corpus.size(folder), time.monotonic()
        return self._size


def is_new_bug(finding: dict[str, Any]) -> bool:
    """Whether a line of findings.jsonl is what makes a campaign exit 1."""
    return is_believed(finding) and not finding["known"] and not is_corrupt(finding)


def is_corrupt(finding: dict[str, Any]) -> bool:
    """Whether a line of findings.jsonl tells of a corrupted input that was taken, and not of a valid program."""
    return Signature.parse(finding["signature"]).is_corrupt


def label_of(finding: dict[str, Any]) -> str:
    """What a finding is, in a word: corrupt, dismissed, known, new, or the harness's verdict."""
    if is_corrupt(finding):
        return CORRUPT
    if finding.get("dismissed"):
        return DISMISSED
    return "new" if is_new_bug(finding) else "known" if finding["known"] else str(finding["verdict"])
