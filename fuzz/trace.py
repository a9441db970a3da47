"""What happened when a program was executed: plain data that the oracles' findings travel back in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from fuzz.finding import Finding, Verdict

# Ends the mode of a step that a captured graph replays.
REPLAYED = "_graph"
# End the modes of steps that data-parallel attention pads, or runs as an extend.
RANK_PADDED = "_padded"
PADDED = (RANK_PADDED, "_relabelled")
# Modes a step can have, as reports name them. Verify carries its tree shape and the mode that routes it.
MODES = (
    "extend",
    "extend_graph",
    "extend_prefix",
    "extend_prefix_graph",
    "extend_chunked",
    "extend_chunked_graph",
    "mixed",
    "mixed_graph",
    "decode",
    "decode_graph",
    "decode_padded",
    "decode_relabelled",
    "verify_chain_prefill",
    "verify_chain_prefill_graph",
    "verify_chain_prefill_padded",
    "verify_chain_decode",
    "verify_chain_decode_graph",
    "verify_chain_decode_padded",
    "verify_tree_prefill",
    "verify_tree_prefill_graph",
    "verify_tree_prefill_padded",
    "verify_tree_decode",
    "verify_tree_decode_graph",
    "verify_tree_decode_padded",
    "verify_ngram_prefill",
    "verify_ngram_prefill_graph",
    "verify_ngram_decode",
    "verify_ngram_decode_graph",
    "verify_dflash_prefill",
    "verify_dflash_prefill_graph",
    "verify_dflash_decode",
    "verify_dflash_decode_graph",
    "verify_dspark_prefill",
    "verify_dspark_prefill_graph",
    "verify_dspark_decode",
    "verify_dspark_decode_graph",
    "draft_prefill",
    "draft_decode",
    "draft_decode_graph",
    "draft_extend",
    "draft_extend_graph",
    "draft_extend_padded",
    "idle",
    "idle_padded",
    "idle_relabelled",
    "finish",
    "retract",
)

_FAMILIES = ("extend", "decode", "verify", "idle")


def family_of(mode: str) -> str:
    """What a backend does alike: the mode without what its requests are like, who routed it here, and who padded it."""
    plain = mode.removesuffix(REPLAYED)
    family = plain.partition("_")[0]
    return (family if family in _FAMILIES else plain) + mode[len(plain) :]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a trace: the op it belongs to, its mode, its verdict, its wall time in seconds.

    ``batch`` is what the step was handed, as JSON-able data (request rows, lengths, locations): the repro
    script is written from it.
    """

    op_index: int
    mode: str
    verdict: Verdict
    seconds: float
    batch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """All steps in order, and the findings. A program whose start-up failed has no steps and one finding.

    ``features``: of an executor that watches the target's code, numbers of what ran there for the first time in this
    program, up to the end of each op that began; what starting up ran is in the first op's.
    """

    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]
    seconds: float
    sglang_version: str
    features: tuple[tuple[int, ...], ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst that was seen; harness faults outrank bugs so that they are never taken for one.

        What a corrupted input led to says nothing of the program without it.
        """
        seen = {one.verdict for one in self.findings if not one.signature.is_corrupt}
        for verdict in (Verdict.INFRA, Verdict.STUB_GAP, Verdict.BUG, Verdict.UNSUPPORTED):
            if verdict in seen:
                return verdict
        return Verdict.OK

    @property
    def step_counts(self) -> tuple[tuple[str, str, int], ...]:
        counts = Counter((step.mode, step.verdict.value) for step in self.steps)
        return tuple((mode, verdict, n) for (mode, verdict), n in sorted(counts.items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": [
                {
                    "op_index": s.op_index,
                    "mode": s.mode,
                    "verdict": s.verdict.value,
                    "seconds": s.seconds,
                    "batch": s.batch,
                }
                for s in self.steps
            ],
            "findings": [finding.to_json() for finding in self.findings],
            "seconds": self.seconds,
            "sglang_version": self.sglang_version,
            **({"features": self.features} if self.features else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        return cls(
            steps=tuple(
                Step(s["op_index"], s["mode"], Verdict(s["verdict"]), s["seconds"], s["batch"]) for s in data["steps"]
            ),
            findings=tuple(Finding.from_json(finding) for finding in data["findings"]),
            seconds=data["seconds"],
            sglang_version=data["sglang_version"],
            features=tuple(map(tuple, data.get("features", ()))),
        )
