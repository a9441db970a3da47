"""What releases support here, found by trying: each backend in both halves, mode by mode, and every pair of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzz.cells import BEHIND, Cell, attempts, reason_of, runs, try_cells
from fuzz.finding import Verdict
from fuzz.launch import WorkerOptions
from fuzz.process import WorkerError, WorkerProcess
from fuzz.program import Decode, Extend, Mixed, Op, Program, Row
from fuzz.targets import open_target
from fuzz.trace import Trace
from fuzz.worker import PAIRS, SPECULATIVE
from stubs.latent_worlds import alone
from stubs.world import World, WorldError

PROGRAM_SECONDS = 120.0  # as a campaign gives a program
# Rows of the table, each with the modes of which all must run.
MODE_ROWS: Mapping[str, tuple[str, ...]] = {
    "extend": ("extend", "extend_prefix", "extend_chunked"),
    "extend, graph": ("extend_graph", "extend_prefix_graph", "extend_chunked_graph"),
    "mixed": ("mixed",),
    "decode": ("decode",),
    "decode, graph": ("decode_graph",),
    "verify, chain": ("verify_chain_prefill", "verify_chain_decode"),
    "verify, chain, graph": ("verify_chain_prefill_graph", "verify_chain_decode_graph"),
    "verify, tree": ("verify_tree_prefill", "verify_tree_decode"),
    "verify, tree, graph": ("verify_tree_prefill_graph", "verify_tree_decode_graph"),
    "verify, NGRAM": ("verify_ngram_prefill", "verify_ngram_decode"),
    "verify, NGRAM, graph": ("verify_ngram_prefill_graph", "verify_ngram_decode_graph"),
    "verify, DFLASH": ("verify_dflash_prefill", "verify_dflash_decode"),
    "verify, DFLASH, graph": ("verify_dflash_prefill_graph", "verify_dflash_decode_graph"),
    "verify, DSPARK": ("verify_dspark_prefill", "verify_dspark_decode"),
    "verify, DSPARK, graph": ("verify_dspark_prefill_graph", "verify_dspark_decode_graph"),
    "draft decode": ("draft_decode",),
    "draft decode, graph": ("draft_decode_graph",),
    "draft extend": ("draft_extend",),
    "draft extend, graph": ("draft_extend_graph",),
    "a rank's padding": ("decode_padded", "decode_relabelled", "idle_padded", "idle_relabelled"),
    "a rank's padding, verify": ("verify_chain_prefill_padded", "verify_chain_decode_padded"),
    "a rank's padding, draft extend": ("draft_extend_padded",),
}
# Rows of plain steps in a world with one thing more.
WORLD_ROWS: Mapping[str, Mapping[str, Any]] = {
    "sliding window": {"sliding_window": 3},
    "local attention": {"attention_chunk_size": 4},
    "logit cap": {"logit_cap": 30},
    "attention sinks": {"sinks": 1},
    "KV in fp8": {"dtype": "bfloat16", "kv_dtype": "fp8_e4m3"},
    "deterministic": {"deterministic": 1},
    "linear layers": {"wrapper": "linear"},
    "two-batch overlap": {"wrapper": "tbo"},
    "encoder": {"encoder_decoder": 1, "num_layers": 2},
}
ROWS = (*MODE_ROWS, *WORLD_ROWS)
YES, NO, UNTRIED = "yes", "no", "untried"
# As in fuzz.model_kinds: later releases compile that store with nvcc when it is first called.
NOT_HERE = (("trtllm_mha", "KV in fp8"),)


@dataclass(frozen=True, slots=True)
class Support:
    """One release. ``backends`` maps a name to its answer in each of ROWS, ``pairs`` PREFILL:DECODE to one.

    A backend's answer is yes, no (SGLang refuses), bug, untried (this machine cannot) or, where the harness is behind,
    stub_gap or infra; a pair's is no, yes, or the speculative attention modes that it verifies in. ``reasons`` say why
    of what is not yes, by "NAME, ROW" or pair. ``error``: why nothing can be told of the release, "" if it can.
    """

    version: str
    backends: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        backends = {name: dict(rows) for name, rows in self.backends.items()}
        told = {"reasons": dict(self.reasons), "error": self.error}
        return {"version": self.version, "backends": backends, "pairs": dict(self.pairs), **told}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Support:
        return cls(data["version"], data["backends"], data["pairs"], data.get("reasons", {}), data.get("error", ""))


def support(target: str, python: str, tell: Callable[[str], None]) -> Support:
    """Try everything on ``target``. Raises TargetError."""
    with open_target(target) as opened, tempfile.TemporaryDirectory(prefix="seamripper-support-") as scratch:
        worker = WorkerProcess(WorkerOptions(python, opened.folder, Path(scratch)))
        try:
            tell(f"importing {target}")
            worker.launch()
            return _tried(worker, worker.wait_ready().sglang_version, tell)
        except WorkerError as error:
            return Support(target.rpartition(":")[2].rpartition("/")[2], error=str(error))
        finally:
            worker.close()


def _tried(worker: WorkerProcess, version: str, tell: Callable[[str], None]) -> Support:
    tell(f"{version}: trying which pairs of backends start")
    found: dict[str, str] = worker.ask(PAIRS)
    pairs = {pair: reason for pair, reason in found.items() if len(set(pair.split(":"))) == 2}
    verifies = worker.ask(SPECULATIVE, [pair for pair, reason in pairs.items() if not reason])
    answers = {pair: NO if reason else " and ".join(verifies[pair]) or YES for pair, reason in pairs.items()}
    reasons = {pair: reason for pair, reason in pairs.items() if reason}
    backends: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(pair.partition(":")[0] for pair in found):
        tell(f"{version}: trying {name}")
        cells = dict(_rows(name, lambda program: worker.run(program, PROGRAM_SECONDS)))
        backends[name] = {row: _answer(cell) for row, cell in cells.items()}
        reasons |= {f"{name}, {row}": cell.reason for row, cell in cells.items() if cell.reason}
    return Support(version, backends, answers, reasons)


def _rows(name: str, run: Callable[[Program], Trace]) -> Iterator[tuple[str, Cell]]:
    """Each of ROWS with what came of it."""
    pair = ":".join(alone(name))
    wanted = {mode for modes in MODE_ROWS.values() for mode in modes}
    cells = try_cells(pair, "cpu", run, wanted)
    for row, modes in MODE_ROWS.items():
        yield row, max((cells[mode] for mode in modes), key=_badness)
    plain = next(attempts(pair, "cpu")).program
    for row, fields in WORLD_ROWS.items():
        if (name, row) in NOT_HERE:
            yield row, Cell(UNTRIED)
            continue
        world = replace(plain.world, **fields)
        try:
            world.check()
        except WorldError as error:  # no model has both
            yield row, Cell(Verdict.UNSUPPORTED.value, str(error))
            continue
        trace = run(replace(plain, world=world).with_ops(_ops_in(world, plain.ops)))
        reasons = [reason_of(one) for one in trace.findings if one.verdict is trace.verdict]
        yield row, Cell(trace.verdict.value, next(iter(reasons), ""))


def _ops_in(world: World, plain: Sequence[Op]) -> tuple[Op, ...]:
    """The plain ops as they can be in ``world``."""
    if world.encoder_decoder:
        return Extend((Row(0, 5, encoder=3),)), Extend((Row(1, 4, encoder=2),)), Decode((0, 1))
    return tuple(Extend(op.rows) if isinstance(op, Mixed) and not world.may_mix else op for op in plain)


def _badness(cell: Cell) -> int:
    return (Verdict.OK.value, Verdict.BUG.value).index(cell.state) if runs(cell) else 2


def _answer(cell: Cell) -> str:
    return {Verdict.OK.value: YES, Verdict.UNSUPPORTED.value: NO, BEHIND: Verdict.BUG.value}.get(cell.state, cell.state)


def markdown(releases: Sequence[Support]) -> str:
    """Two tables, releases from the oldest to the newest: backends and modes, then pairs."""
    known = [release for release in releases if not release.error]
    names = list(dict.fromkeys(name for release in known for name in release.backends))
    rows = [
        [row, *(spans(releases, [one.backends.get(name, {}).get(row, "") for one in releases]) for name in names)]
        for row in ROWS
    ]
    halves = [
        [
            prefill,
            *(spans(releases, [one.pairs.get(f"{prefill}:{decode}", "") for one in releases]) for decode in names),
        ]
        for prefill in names
    ]
    corner = r"prefill \ decode"
    return "\n\n".join((_table(["", *names], rows), _table([corner, *names], halves))) + "\n"


def spans(releases: Sequence[Support], answers: Sequence[str]) -> str:
    """The answers of all releases in a few words: one for all, else FIRST to LAST and the answer, "no" left out."""
    told = [(one.version, answer) for one, answer in zip(releases, answers, strict=True) if not one.error]
    runs_of: list[tuple[str, str, str]] = []
    for version, answer in told:
        first = runs_of.pop()[0] if runs_of and runs_of[-1][2] == answer else version
        runs_of.append((first, version, answer))
    if len(runs_of) == 1:
        answer = runs_of[0][2]
        return "–" if answer in (NO, "") else answer
    parts = [
        f"{first if first == last else f'{first} to {last}'}{'' if answer == YES else f': {answer}'}"
        for first, last, answer in runs_of
        if answer not in (NO, "")
    ]
    return "; ".join(parts) or "–"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
