"""The steps of a repro script: which rows and KV slots each batch of a trace used, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fuzz.finding import Finding
from fuzz.program import Decode, Extend, Idle, Mixed, Op, Program, Verify
from fuzz.trace import MODES, Trace

# Steps on the draft model, which scripts do not have.
DRAFT_MODES = tuple(mode for mode in MODES if mode.startswith("draft_"))


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One batch on the target model. Request i owns row ``rows[i]`` and slots ``slots[i]``, in token order.

    The first ``prefix[i]`` slots were written by earlier steps; the step writes the others. ``host`` says whether the
    lengths are also told to the host. The first ``encoder[i]`` slots hold what an encoder gave; in this step, where
    ``prefix[i]`` is 0. Empty in worlds without.
    """

    mode: str
    rows: tuple[int, ...]
    prefix: tuple[int, ...]
    slots: tuple[tuple[int, ...], ...]
    host: bool = True
    encoder: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Owner:
    row: int
    slots: tuple[int, ...]
    length: int
    encoder: int = 0


@dataclass(slots=True)
class _Server:
    """Who owns what after the steps so far; serves the last step when it failed before it had a batch."""

    program: Program
    owners: dict[int, _Owner] = field(default_factory=dict)
    used: int = 0  # the highest slot ever seen

    def see(self, op: Op, batch: dict[str, Any]) -> ScriptStep:
        """Record a batch as the executor described it."""
        requests, counts = batch["requests"], batch["count"]
        prefix = tuple(batch["prefix"])
        slots = tuple(tuple(own) for own in batch["slots"])
        rows = tuple(batch["req_pool_indices"][: len(requests)])  # padding is left out
        encoder = tuple(batch.get("encoder", [0] * len(requests)))
        for index, request in enumerate(requests):
            written = op.accepts[index] if isinstance(op, Verify) else counts[index]
            self.owners[request] = _Owner(rows[index], slots[index], prefix[index] + written, encoder[index])
            self.used = max(self.used, *slots[index])
        new = batch.get("encoded", [False] * len(requests))
        prefix = tuple(0 if is_new else known for known, is_new in zip(prefix, new, strict=True))
        host = batch["seq_lens_cpu"] is not None
        return ScriptStep(batch["forward_mode"], rows, prefix, slots, host, encoder if "encoder" in batch else ())

    def guess(self, op: Op, host: bool) -> ScriptStep:
        """The batch that ``op`` would have had, on slots that nobody used."""
        new = _new_tokens(self.program, op)
        encoders = {row.request: row.encoder for row in getattr(op, "rows", ())}
        for request, _ in new:
            if request not in self.owners:
                taken = {owner.row for owner in self.owners.values()}
                row = next(row for row in range(1, len(taken) + 2) if row not in taken)
                self.owners[request] = _Owner(row, (), 0, encoders.get(request, 0))
        owners = [self._grown(request, count) for request, count in new]
        mode = "TARGET_VERIFY" if isinstance(op, Verify) else op.kind.upper()
        return ScriptStep(
            mode,
            tuple(owner.row for owner in owners),
            tuple(owner.length for owner in owners),
            tuple(owner.slots for owner in owners),
            host,
            tuple(owner.encoder for owner in owners) if self.program.world.encoder_decoder else (),
        )

    def _grown(self, request: int, count: int) -> _Owner:
        """The owner with slots for ``count`` more tokens: on its last page, then on new ones."""
        owner = self.owners[request]
        page = self.program.world.page_size
        slots = list(owner.slots[: owner.length])
        for _ in range(count):
            if slots and len(slots) % page:
                slots.append(slots[-1] + 1)
            else:
                slots.append((self.used // page + 1) * page)
            self.used = max(self.used, slots[-1])
        return replace(owner, slots=tuple(slots))


def script_steps(program: Program, finding: Finding, trace: Trace) -> tuple[ScriptStep, ...]:
    """The target model's batches up to and with the one that showed ``finding``; none if the start-up did.

    Batches of the draft model are left out: they have pools of their own.
    """
    server = _Server(program)
    steps: list[ScriptStep] = []
    if finding.mode == "start-up":
        return ()
    for step in trace.steps:
        op = program.ops[step.op_index]
        if step.mode in ("finish", "retract"):
            for request in step.batch.get("requests", ()):
                server.owners.pop(request, None)
        elif step.mode not in DRAFT_MODES and "slots" in step.batch:
            steps.append(server.see(op, step.batch))
        elif step.mode not in DRAFT_MODES:
            steps.append(server.guess(op, host=not (isinstance(op, Verify) and program.world.overlap)))
        if step.op_index == finding.op_index and step.mode == finding.mode:
            break
    return tuple(steps)


def _new_tokens(program: Program, op: Op) -> list[tuple[int, int]]:
    """(request, new tokens) of each row of a batch that ``op`` makes."""
    extended = [(row.request, row.tokens) for row in op.rows] if isinstance(op, (Extend, Mixed)) else []
    if isinstance(op, (Mixed, Decode)):
        return [*extended, *((request, 1) for request in op.requests)]
    if isinstance(op, Verify):
        lens = op.verify_lens or (program.world.spec_draft_tokens,) * len(op.requests)
        return list(zip(op.requests, lens, strict=True))
    assert isinstance(op, (Extend, Idle)), f"{op.kind} makes no batch"
    return extended
