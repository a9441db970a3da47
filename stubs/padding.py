"""How a rank's batch is padded under data-parallel attention, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Padding:
    """``dead`` rows of nobody behind those of requests, as many as the fullest rank has more.

    ``beside_extend``: another rank extends meanwhile, for which SGLang may run this one's step as an extend.
    """

    dead: int = 0
    beside_extend: bool = False

    @property
    def is_needed(self) -> bool:
        return self.dead > 0 or self.beside_extend


UNPADDED = Padding()
