"""An Answer: what a layer of attention gave, and the use that a model makes of it before its next layer runs."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch


class Answer(NamedTuple):
    """``given`` [tokens, ...] may be a view of a buffer that the backend's next layer writes again: ``used`` is its copy."""

    given: torch.Tensor
    used: torch.Tensor

    @classmethod
    def of(cls, out: torch.Tensor) -> Answer:
        return cls(out, out.clone())

    def forget(self) -> None:
        """NaN in both, so that a replay that writes neither shows."""
        self.given.fill_(math.nan)
        self.used.fill_(math.nan)
