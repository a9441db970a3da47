"""Verdicts, signatures and findings: what an oracle says of a trace, as plain data."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# The kind of a fault that broke the GPU's context: the process that met it can run nothing more.
CUDA_FAULT = "cuda_fault"
# The kind of a call outside of a closed kernel's contract.
BREACH = "contract_breach"
# Between the argument that a closed kernel's contract was broken by and the rule that was, where it has several.
RULE = ":"
# Evidence of a breach that was noted: the call was answered all the same, and so no number is wrong for it.
ANSWERED = "answered"
TITLE_MAX = 300  # characters of an exception's text
# The oracle of steps whose input was corrupted on purpose; what it finds is told apart from faults on valid programs.
CORRUPT = "corrupt"
# Evidence of a finding about numbers: how many times its tolerance it was off.
TIMES_TOLERANCE = "times_tolerance"
# And how many times nearer it was to what the wrong rule gives that explains it.
TIMES_NEARER = "times_nearer"

# How near to the cause an oracle looks: a kernel that goes astray, one that was called wrong, an exception, what is left
# in memory, a wrong number.
_RANKS = {"bounds": 0, "contract": 2, "state": 3, "numeric": 4}
_BREACH_RANK, _LAST_RANK = 1, 5


class Verdict(str, Enum):
    """Never blurred: see README, "Verdicts"."""

    OK = "ok"
    BUG = "bug"
    UNSUPPORTED = "unsupported"
    STUB_GAP = "stub_gap"
    INFRA = "infra"


@dataclass(frozen=True, slots=True, order=True)
class Signature:
    """The identity of a fault from release to release: no line numbers, no addresses.

    ``oracle`` is contract, bounds, numeric, state or corrupt; ``kind`` the class of fault (an exception's type name,
    "wrong_output", ...); ``place`` the innermost SGLang qualified name, ``Class.attribute`` for a missing
    attribute, ``kernel.argument``, or ``kernel.argument:rule``.
    """

    oracle: str
    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.oracle}/{self.kind}/{self.place}"

    @property
    def slug(self) -> str:
        """``<oracle>-<kind>-<place>-<hash8>``, safe as a file name on every system."""
        readable = "-".join(re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_")[:60] for part in self.parts)
        return f"{readable}-{hashlib.sha256(str(self).encode()).hexdigest()[:8]}"

    @property
    def parts(self) -> tuple[str, str, str]:
        return self.oracle, self.kind, self.place

    @property
    def without_rule(self) -> Signature:
        """Where a contract was broken, whichever of the argument's rules it was."""
        return Signature(self.oracle, self.kind, self.place.partition(RULE)[0]) if self.kind == BREACH else self

    @property
    def rank(self) -> int:
        """How near to its cause such a fault is seen, 0 being nearest."""
        return _BREACH_RANK if self.kind == BREACH else _RANKS.get(self.oracle, _LAST_RANK)

    @property
    def is_corrupt(self) -> bool:
        """Of a step whose input was corrupted on purpose: no fault on a valid program."""
        return self.oracle == CORRUPT

    @classmethod
    def parse(cls, text: str) -> Signature:
        oracle, kind, place = text.split("/", 2)
        return cls(oracle, kind, place)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault seen at one step. ``verdict`` is bug, stub_gap, unsupported or infra.

    ``op_index`` is the index in Program.ops of the op whose step showed it; ``mode`` that step's kind.
    ``evidence`` maps short names to text (object, attribute, traceback, worst error and where, ...).
    """

    verdict: Verdict
    signature: Signature
    title: str
    message: str
    op_index: int
    mode: str
    evidence: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.value,
            "signature": str(self.signature),
            "title": self.title,
            "message": self.message,
            "op_index": self.op_index,
            "mode": self.mode,
            "evidence": dict(self.evidence),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        return cls(
            verdict=Verdict(data["verdict"]),
            signature=Signature.parse(data["signature"]),
            title=data["title"],
            message=data["message"],
            op_index=data["op_index"],
            mode=data["mode"],
            evidence=dict(data["evidence"]),
        )
