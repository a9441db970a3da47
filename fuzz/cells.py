"""The cells of the table pair x mode, each tried by a small program that comes to it: does it run, else why not?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from fuzz.finding import Finding, Verdict
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from fuzz.trace import MODES, RANK_PADDED, REPLAYED, Trace
from stubs.latent_worlds import smallest_world
from stubs.world import World
from stubs.world_rules import SPEC_MODES

CELLS = MODES
DRAFTS = ("draft_prefill", "draft_decode", "draft_extend")
BEHIND = "behind"
REASON_MAX = 300


@dataclass(frozen=True, slots=True)
class Cell:
    """``state`` is a verdict, BEHIND where another step's fault is in the way, "" where nothing is known yet.

    ``reason`` is a line, empty where the mode is ok.
    """

    state: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A program, and the modes that its steps are to have."""

    program: Program
    modes: tuple[str, ...]


def attempts(pair: str, device: str) -> Iterator[Attempt]:
    """From the plainest on. Of drafts those of two steps come first: one step needs no draft decode backend."""
    prefill, _, decode = pair.partition(":")
    # Long enough for what a tree of large pages reserves, see World.spec_reserve.
    plain = replace(
        smallest_world(prefill, decode, device), context_len=256, max_running_requests=2, max_total_tokens=1024
    )
    page = plain.page_size
    modes = ("extend", "extend_prefix", "extend_chunked", "mixed", "decode", "idle", "finish", "retract")
    yield Attempt(Program(plain, _plain_ops(page)), modes)
    yield Attempt(Program(replace(plain, graph=1), (Extend((Row(0, 2),)), Decode((0,)))), ("decode" + REPLAYED,))
    replayed = tuple(mode + REPLAYED for mode in modes[:4])
    yield Attempt(Program(replace(plain, prefill_graph=256), _prefill_ops(page)), replayed)
    for name, beside in (("padded", 0), ("relabelled", 1)):
        ops = (Extend((Row(0, 2),)), Decode((0,), 1 - beside, beside), Idle(dead=2, beside_extend=beside))
        yield Attempt(Program(plain, ops), (f"decode_{name}", f"idle_{name}"))
    for mode in SPEC_MODES:
        for shape, topk in (("chain", 1), ("tree", 2)):
            for graph in (0, 1):
                for steps in (2, 1):
                    yield _drafting(plain, f"verify_{shape}_{mode}", topk, steps, graph)
            for steps in (2, 1):
                yield _padded(_drafting(plain, f"verify_{shape}_{mode}", topk, steps, 0))
        for graph in (0, 1):
            yield _modelless(plain, "NGRAM", mode, 2 if page == 1 or prefill == "flashinfer" else 1, graph)
            yield _modelless(plain, "DFLASH", mode, 1, graph)
            yield _modelless(plain, "DSPARK", mode, 1, graph)


def try_cells(
    pair: str, device: str, run: Callable[[Program], Trace], wanted: Collection[str] = CELLS
) -> dict[str, Cell]:
    """What comes of each of the ``wanted`` modes with ``pair``; no program runs that would tell nothing new of them."""
    found: dict[str, Cell] = {}
    for attempt in attempts(pair, device):
        if not set(attempt.modes) & set(wanted):
            continue
        if not all(runs(found.get(mode, Cell())) for mode in attempt.modes) and not inherit(found, attempt):
            settle(found, attempt, run(attempt.program))
    return found


def inherit(found: dict[str, Cell], attempt: Attempt) -> bool:
    """Whether the attempt is of graphs, or of padding, of a verify that is refused without: the reason is theirs, too."""
    first = attempt.modes[0]
    plain = first.removesuffix(REPLAYED).removesuffix(RANK_PADDED)
    eager = found.get(plain)
    if not first.startswith("verify") or plain == first or eager is None:
        return False
    if eager.state != Verdict.UNSUPPORTED.value:
        return False
    for mode in attempt.modes:
        found.setdefault(mode, eager)
    return True


def settle(found: dict[str, Cell], attempt: Attempt, trace: Trace) -> None:
    """Add to ``found`` what the trace of an attempt says: of what does not run the first reason stays."""
    for mode in attempt.modes:
        cell = _cell(trace, mode)
        if mode not in found or runs(cell):
            found[mode] = cell


def runs(cell: Cell) -> bool:
    return cell.state in (Verdict.OK.value, Verdict.BUG.value)


def _plain_ops(page: int) -> tuple[Op, ...]:
    return (
        Extend((Row(0, page + 1),)),
        Finish((0,), keep=1),
        Extend((Row(1, 2, cached_from=0, cached=page),)),
        Extend((Row(2, page, more=1),)),
        Mixed((Row(2, 1),), (1,)),
        Decode((1, 2)),
        Idle(),
        Retract((1,)),
    )


def _prefill_ops(page: int) -> tuple[Op, ...]:
    """Prefills of at least half as many tokens as the smallest graph of SGLang's has, which are four."""
    return (
        Extend((Row(0, page + 2),)),
        Finish((0,), keep=1),
        Extend((Row(1, 2, cached_from=0, cached=page),)),
        Extend((Row(2, max(page, 4), more=1),)),
        Mixed((Row(2, 2),), (1,)),
    )


def _drafting(plain: World, verify: str, topk: int, steps: int, graph: int) -> Attempt:
    world = replace(
        plain,
        spec_algorithm="EAGLE",
        spec_mode=verify.rpartition("_")[2],
        spec_steps=steps,
        spec_topk=topk,
        spec_draft_tokens=steps + 1 if topk == 1 else steps + 2,
        graph=graph,
    )
    drafts = DRAFTS if steps > 1 else ("draft_prefill", "draft_extend")
    modes = (verify, *drafts)
    if graph:
        modes = tuple(mode + REPLAYED for mode in modes if mode != "draft_prefill")
    ops = (Extend((Row(0, 2),)), Verify((0,), (1,), draft_decode=1 if steps > 1 else 0))
    return Attempt(Program(world, ops), modes)


def _padded(attempt: Attempt) -> Attempt:
    """The attempt of a rank among several, another of which has a request more."""
    ops = tuple(replace(op, dead=1) if isinstance(op, Verify) else op for op in attempt.program.ops)
    padded = tuple(mode + RANK_PADDED for mode in attempt.modes if mode.startswith(("verify", "draft_extend")))
    return Attempt(attempt.program.with_ops(ops), padded)


def _modelless(plain: World, algorithm: str, mode: str, topk: int, graph: int) -> Attempt:
    """A verify of drafts that no draft model makes here."""
    width = 4
    world = replace(
        plain,
        spec_algorithm=algorithm,
        spec_mode=mode,
        spec_steps=width // topk if algorithm == "NGRAM" else 1,
        spec_topk=topk,
        spec_draft_tokens=width,
        graph=graph,
    )
    verify = f"verify_{world.spec_shape}_{mode}{REPLAYED if graph else ''}"
    if world.is_ragged:
        ops = (Extend((Row(0, 2), Row(1, 3))), Verify((0, 1), (1, 1), draft_extend=0, verify_lens=(1, 3)))
        return Attempt(Program(world, ops), (verify,))
    return Attempt(Program(world, (Extend((Row(0, 2),)), Verify((0,), (1,), draft_extend=0))), (verify,))


def reason_of(finding: Finding) -> str:
    """One line: SGLang's own words, or the exception that it raises instead."""
    words = " ".join(finding.title.split())
    said = finding.verdict is not Verdict.UNSUPPORTED or finding.signature.kind == "refused"
    return (words if said else f"{finding.signature.kind} in {words}")[:REASON_MAX]


def _cell(trace: Trace, mode: str) -> Cell:
    """What a trace says of a mode that it was to have."""
    verdicts = {step.verdict for step in trace.steps if step.mode == mode}
    if Verdict.BUG in verdicts:
        titles = (reason_of(one) for one in trace.findings if one.verdict is Verdict.BUG and one.mode == mode)
        return Cell(Verdict.BUG.value, next(titles, ""))
    if Verdict.OK in verdicts:
        return Cell(Verdict.OK.value)
    eager = mode.removesuffix(REPLAYED)
    instead = Cell(Verdict.UNSUPPORTED.value, f"SGLang captures no graph of it, and runs {eager}")
    if eager != mode and any(step.mode == eager and runs(Cell(step.verdict.value)) for step in trace.steps):
        return instead
    for finding in trace.findings:
        state = BEHIND if finding.verdict is Verdict.BUG else finding.verdict.value
        return Cell(state, reason_of(finding))
    return instead
