"""What generated programs may be made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzz.worlds import PAGE_SIZES, SHAPES, page_sizes_for
from stubs.world import World

# Interpreted kernels cost per token: some 200 tokens keep a program below a second or two.
TOKENS_MAX = 200
# A new program's ops: enough for a prompt, a few steps, an end and a reuse of its slots.
OPS_MIN, OPS_MAX = 4, 14


class LimitsError(ValueError):
    """Limits that no program can meet; the message says which and what to change."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What programs may be made of.

    ``pairs`` are spelled PREFILL:DECODE. ``twins`` lets both halves have one name, which SGLang never assembles
    itself. ``page_sizes`` maps a backend name to the sizes it takes, ``speculative`` a pair to the modes it verifies in,
    with each mode's most draft steps (None: no limit known), ``shapes`` the kinds of world. ``worlds``, where given, are
    taken as they are (their own pairs, runner and device) instead of drawn: the way to a scope small enough to exhaust.
    ``graph`` 1: only worlds that capture graphs, 0: only others, of halves that no release refuses to capture; None:
    any. ``row_overflow`` allows speculative steps whose reserve of 2A slots is longer than the request's row of
    context_len + 4 + draft tokens: SGLang writes past the row there, a fault outside the attention backends.
    """

    pairs: tuple[str, ...] = ("triton:torch_native",)
    runner: str = "fake"
    device: str = "cpu"
    ops_min: int = OPS_MIN
    ops_max: int = OPS_MAX
    tokens_max: int = TOKENS_MAX
    twins: bool = False
    page_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    speculative: Mapping[str, Mapping[str, int]] | None = None
    shapes: tuple[str, ...] = SHAPES
    worlds: tuple[World, ...] = ()
    graph: int | None = None
    row_overflow: bool = False

    def check(self) -> None:
        """Raise LimitsError on the first rule broken."""
        if not self.pairs and not self.worlds:
            raise LimitsError("no pairs given; expected at least one PREFILL:DECODE")
        for pair in self.pairs:
            prefill, colon, decode = pair.partition(":")
            if not (prefill and colon and decode) or ":" in decode:
                raise LimitsError(f"pair is {pair!r}; expected PREFILL:DECODE, such as triton:torch_native")
            if prefill == decode and not self.twins:
                raise LimitsError(f"pair {pair!r} has two equal names, which SGLang never assembles; allow twins")
            if not page_sizes_for(pair, self.page_sizes):
                takes = (
                    f"{name} takes {', '.join(map(str, self.page_sizes.get(name, PAGE_SIZES)))}"
                    for name in (prefill, decode)
                )
                raise LimitsError(f"no page size serves both halves of {pair!r}: {'; '.join(takes)}")
        if not 1 <= self.ops_min <= self.ops_max:
            raise LimitsError(f"ops are {self.ops_min}..{self.ops_max}; expected 1 <= ops_min <= ops_max")
