"""What a target can do here, found by trying: which pairs of backends start, and in which modes they verify drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from stubs.latent_worlds import alone, smallest_world
from stubs.page_sizes import unshared
from stubs.world import World
from stubs.world_rules import SPEC_MODES

SPEC_STEPS_MAX = 4
# Two steps of drafting need a draft decode backend; one does not, and starts with names that have none.
STEPS_TRIED = (2, 1)


@dataclass(slots=True)
class Trial:
    """``reason`` starts a world: "" or the reason why it cannot run here.

    ``starts`` and ``verifies`` say whether anything but a refusal comes of starting a world, and of a small verify in
    it: a bug there is for the campaign to find.
    """

    device: str
    reason: Callable[[World], str]
    starts: Callable[[World], bool]
    verifies: Callable[[World], bool]
    _leaves: dict[tuple[str, str], bool | None] = field(default_factory=dict)

    def pairs(self, names: Sequence[str]) -> dict[str, str]:
        """PREFILL:DECODE -> "" where its plainest world starts, else SGLang's reason or the error. Twins included.

        A name that does not start by itself is not tried beside others: its reason is theirs.
        """
        by_itself = {name: self.reason(self._world(*alone(name))) for name in names}
        found = {}
        for one in names:
            for other in names:
                reason = by_itself[one] or by_itself[other] or unshared(one, other)
                known = reason or (one, other) == alone(other)
                found[f"{one}:{other}"] = reason if known else self.reason(self._world(one, other))
        return found

    def modes(self, pair: str) -> dict[str, int]:
        """The speculative attention modes that ``pair`` verifies in, each with the most draft steps to draw.

        Whether a pair starts is tried for each; whether a verify is refused then, once for the half that serves it.
        """
        prefill, _, decode = pair.partition(":")
        found: dict[str, int] = {}
        for mode in SPEC_MODES:
            if self._leaf_verifies(prefill if mode == "prefill" else decode, mode) is False:
                continue
            for steps in STEPS_TRIED:
                if self._verifies(self._chain(prefill, decode, mode, steps), mode):
                    found[mode] = SPEC_STEPS_MAX if steps > 1 else 1
                    break
        return found

    def _verifies(self, world: World, mode: str) -> bool:
        leaf = world.prefill if mode == "prefill" else world.decode
        if self._leaf_verifies(leaf, mode) is None:
            return self.verifies(world)
        return self.starts(world)

    def _leaf_verifies(self, name: str, mode: str) -> bool | None:
        """Whether the backend verifies by itself; None where it does not start so."""
        if (name, mode) not in self._leaves:
            worlds = (self._chain(*alone(name), mode, steps) for steps in STEPS_TRIED)
            started = next((world for world in worlds if self.starts(world)), None)
            self._leaves[name, mode] = None if started is None else self.verifies(started)
        return self._leaves[name, mode]

    def _world(self, prefill: str, decode: str) -> World:
        return smallest_world(prefill, decode, self.device)

    def _chain(self, prefill: str, decode: str, mode: str, steps: int) -> World:
        return replace(
            self._world(prefill, decode),
            spec_algorithm="EAGLE",
            spec_mode=mode,
            spec_steps=steps,
            spec_topk=1,
            spec_draft_tokens=steps + 1,
        )
