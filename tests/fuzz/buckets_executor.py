"""An executor without SGLang that shows all faults of a program: those that the target lists, where the ops call for them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fuzz.finding import Finding, Signature, Verdict
from fuzz.ledger import Ledger
from fuzz.program import Decode, Extend, Idle, Mixed, Op, Program
from fuzz.request import State
from fuzz.trace import Step, Trace
from tests.fuzz import fake_executor

prepare, available_pairs = fake_executor.prepare, fake_executor.available_pairs
speculative_modes = fake_executor.speculative_modes

# What is planted in a target -> the signature of its bucket. Several share an oracle, a kind or a place; some come
# together in most programs, and most programs show several.
FAULTS = {
    "decode_short": "numeric/window_short_by_one/TritonAttnBackend.forward_decode",
    "decode_ignored": "numeric/window_ignored/TritonAttnBackend.forward_decode",
    "extend_ignored": "numeric/window_ignored/TritonAttnBackend.forward_extend",
    "retracted_back": "state/stray_kv_write/TritonAttnBackend.extend",
    "kept_hit": "bounds/stale_read/_fwd_kernel.K_Buffer",
    "three_at_once": "contract/IndexError/TritonAttnBackend.init_forward_metadata",
    "chunk": "state/indptr_falls/TritonAttnBackend.kv_indptr.extend",
    "idle": "contract/AttributeError/HybridAttnBackend.idle",
}

Rule = Callable[[Op, Ledger], bool]


def execute(program: Program) -> Trace:
    planted = {name: Signature.parse(FAULTS[name]) for name in sys.modules["sglang"].FAULTS}
    ledger, steps, findings = Ledger(program.world), [], []
    for index, op in enumerate(program.ops):
        shown = [signature for name, signature in planted.items() if RULES[name](op, ledger)]
        new = [one for one in shown if all(one != finding.signature for finding in findings)]
        findings += [Finding(Verdict.BUG, one, str(one), "planted", index, op.kind) for one in new]
        steps.append(Step(index, op.kind, Verdict.BUG if shown else Verdict.OK, 0.0, {}))
        ledger.apply(op)
    return Trace(tuple(steps), tuple(findings), 0.0, "9.1")


def _longest(op: Op, ledger: Ledger) -> int:
    """The most KV that a request of a decode has."""
    return max((ledger.requests[number].length for number in op.requests), default=0) if isinstance(op, Decode) else 0


def _rows(op: Op) -> int:
    return len(op.rows) if isinstance(op, (Extend, Mixed)) else 0


def _back(op: Op, ledger: Ledger) -> bool:
    known = ledger.requests
    rows = op.rows if isinstance(op, (Extend, Mixed)) else ()
    return any(row.request in known and known[row.request].state is State.RETRACTED for row in rows)


RULES: dict[str, Rule] = {
    "decode_short": lambda op, ledger: 4 < _longest(op, ledger),
    "decode_ignored": lambda op, ledger: isinstance(op, Decode) and len(op.requests) > 1,
    "extend_ignored": lambda op, ledger: any(row.tokens > 5 for row in getattr(op, "rows", ())),
    "retracted_back": _back,
    "kept_hit": lambda op, ledger: any(row.cached for row in getattr(op, "rows", ())),
    "three_at_once": lambda op, ledger: _rows(op) == 3,
    "chunk": lambda op, ledger: any(row.more for row in getattr(op, "rows", ())),
    "idle": lambda op, ledger: isinstance(op, Idle),
}
