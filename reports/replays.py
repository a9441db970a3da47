"""How a finding did when its program was run again: every time, now and then, or never, and what is known of why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

ALWAYS, FLAKY, NEVER, NOT_RUN = "every time", "flaky", "not reproduced", "not run again"
REPLAYS = (ALWAYS, FLAKY, NEVER, NOT_RUN)


def replay_of(findings: pd.DataFrame) -> pd.Series[str]:
    """One of REPLAYS for each finding: k of N runs showed it, with k = N, between, 0, or N = 0."""
    shown, runs = findings["shown"], findings["runs"]
    told = np.select([runs == 0, shown == 0, shown < runs], [NOT_RUN, NEVER, FLAKY], ALWAYS)
    return pd.Series(told, index=findings.index, dtype="string")


def doubt(finding: Mapping[Any, Any]) -> str:
    """What keeps a finding from being certain, in a line; "" where every run showed it."""
    shown, runs, otherwise = finding["shown"], finding["runs"], finding["otherwise"]
    if not runs:
        return "not run again: the run ended, or lost its worker, before that"
    if not shown:
        came_to = f" ({otherwise})" if otherwise else ""
        why = "what ran before it in its worker made it, or chance"
        return f"not reproduced: none of {runs} runs in fresh processes shows it{came_to}; {why}"
    if shown < runs:
        return f"flaky: shows in {shown} of {runs} runs" + (f"; the others: {otherwise}" if otherwise else "")
    return ""
