"""What decides a campaign's programs, settled when it starts and kept in its out folder, so that it can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fuzz.order import CampaignError, CampaignOptions
from fuzz.process import WorkerProcess
from fuzz.sealed import SealError, sealed, unsealed
from fuzz.store import write_whole
from fuzz.worker import PAIRS, SPECULATIVE

TERMS = "campaign.json"


@dataclass(frozen=True, slots=True)
class Terms:
    """``asked`` are the options that decide it; the rest is what the target answered when it was first asked.

    ``refused`` are the pairs that do not start, each with the reason.
    """

    asked: dict[str, Any]
    pairs: tuple[str, ...]
    speculative: Mapping[str, Mapping[str, int]]
    sglang_version: str
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_line(self) -> str:
        # Pairs and modes are gone round in their order, which the fields of a sealed line do not keep.
        speculative = [[pair, list(modes.items())] for pair, modes in self.speculative.items()]
        answered = {"pairs": self.pairs, "speculative": speculative, "sglang_version": self.sglang_version}
        return sealed({"asked": self.asked, **answered, "refused": dict(self.refused)})

    @classmethod
    def from_line(cls, line: str) -> Terms:
        """Raises SealError."""
        data = unsealed(line)
        try:
            speculative = {pair: dict(modes) for pair, modes in data["speculative"]}
            refused = dict(data.get("refused", {}))
            return cls(data["asked"], tuple(data["pairs"]), speculative, data["sglang_version"], refused)
        except (KeyError, TypeError, ValueError) as error:
            raise SealError(f"lacks a field ({error})") from None

    def check(self, options: CampaignOptions) -> None:
        """Raise CampaignError where the folder is another campaign's."""
        now = asked(options)
        for name in {**now, **self.asked}:
            was, given = self.asked.get(name), now.get(name)
            if was != given:
                raise CampaignError(
                    f"{options.out} holds a campaign with {name} {was!r}, given {given!r}; give this one another --out"
                )

    def check_version(self, version: str, options: CampaignOptions) -> None:
        if version != self.sglang_version:
            raise CampaignError(
                f"{options.out} holds a campaign on SGLang {self.sglang_version}, and {options.target} is {version} now; "
                "give this one another --out"
            )


def settle(options: CampaignOptions, worker: WorkerProcess, version: str) -> Terms:
    """Ask the target what programs can be made of, and write it down for whoever goes on.

    Raises CampaignError for a pair that cannot run, WorkerError, StoreError.
    """
    answers: dict[str, str] = worker.ask(PAIRS)
    pairs = options.choose(answers)
    speculative = worker.ask(SPECULATIVE, pairs) if pairs else {}
    worker.renew()  # it has run programs to find that out
    terms = Terms(asked(options), pairs, speculative, version, options.refused(answers))
    if pairs:
        write_whole(options.out / TERMS, terms.to_line() + "\n", durable=True)
    return terms


def asked(options: CampaignOptions) -> dict[str, Any]:
    """The options that decide which programs a campaign runs. Budgets are not among them: they may be raised."""
    names = ("target", "runner", "device", "engine", "seed", "twins", "executor")
    came_later: dict[str, Any] = {}  # left out where an older campaign has none
    if options.corrupt:
        came_later["corrupt"] = True
    if options.shards > 1:
        came_later["shard"] = [options.shard, options.shards]
    return {**{name: getattr(options, name) for name in names}, "pairs": list(options.pairs), **came_later}
