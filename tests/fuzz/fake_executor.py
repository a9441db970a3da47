"""An executor without SGLang: each op calls ``step(kind, seed)`` of whatever package ``sglang`` the target holds.

Where it has a ``start()`` that is called first.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import Any

from fuzz import slot
from fuzz.finding import Finding, Signature, Verdict
from fuzz.place import innermost
from fuzz.program import Program
from fuzz.trace import Step, Trace

_VERDICTS = {"Gap": Verdict.STUB_GAP, "Refusal": Verdict.UNSUPPORTED}
_target: Any = None


def prepare() -> str:
    global _target
    import sglang

    _target = sglang
    return str(sglang.__version__)


def available_pairs() -> dict[str, str]:
    return dict(getattr(_target, "PAIRS", {"triton:torch_native": "", "triton:fa3": "no fa3 here"}))


def speculative_modes(pairs: Sequence[str]) -> dict[str, dict[str, int]]:
    return {pair: dict(getattr(_target, "MODES", {"prefill": 4, "decode": 4})) for pair in pairs}


def execute(program: Program) -> Trace:
    started = time.monotonic()
    steps: list[Step] = []
    findings: list[Finding] = []
    try:
        getattr(_target, "start", int)()
    except Exception as error:  # noqa: BLE001 - the target's failures are values
        return Trace((), (_finding(error, 0, "start-up"),), time.monotonic() - started, _target.__version__)
    for index, op in enumerate(program.ops):
        slot.begin_op(index)
        verdict = Verdict.OK
        try:
            _target.step(op.kind, program.seed)
        except Exception as error:  # noqa: BLE001 - the target's failures are values
            findings.append(_finding(error, index, op.kind))
            verdict = findings[-1].verdict
        steps.append(Step(index, op.kind, verdict, 0.0, {}))
        if findings:
            break
    return Trace(tuple(steps), tuple(findings), time.monotonic() - started, _target.__version__)


def _finding(error: Exception, index: int, mode: str) -> Finding:
    kind = type(error).__name__
    place = innermost(traceback.extract_tb(error.__traceback__))
    verdict = _VERDICTS.get(kind, Verdict.BUG)
    return Finding(verdict, Signature("contract", kind, place), f"{kind} at {place}", str(error), index, mode)
