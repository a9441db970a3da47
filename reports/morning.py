"""What a morning asks first: how much is new, flaky, not reproduced, known, and fixed since the night before."""

from __future__ import annotations

import pandas as pd

from fuzz.since import FIXED, MET, NOT_RUN, SHOWS, UNCLEAR
from reports.causes import follows_of
from reports.load import Run
from reports.replays import FLAKY, NEVER, replay_of
from reports.replays import NOT_RUN as NOT_REPLAYED
from reports.tables import is_believed, is_new

# What became of a fault of an earlier run, in words, in the order in which they matter.
SINCE_WORDS = {
    FIXED: "fixed",
    SHOWS: "not met, still showing",
    UNCLEAR: "not seen again (unclear)",
    NOT_RUN: "not seen again (not re-run)",
    MET: "met again",
}

_TELLING = ("state", "detail", "reruns", "count")


def overview_table(run: Run) -> pd.DataFrame:
    """Columns ``of``, ``what`` and ``count``, always the same rows; without an earlier run what is said of one is 0.

    ``of`` is "new" where the row counts a part of the new findings: how their programs did when run again, and which of
    them the earlier run had found; "" elsewhere.
    """
    new = run.findings[is_new(run.findings)]
    replay, state = replay_of(new), run.since["state"]
    counts = {
        ("", "new"): len(new),
        ("new", "follow from another"): (follows_of(new) != "").sum(),
        ("new", "flaky"): (replay == FLAKY).sum(),
        ("new", "not reproduced"): (replay == NEVER).sum(),
        ("new", "not run again"): (replay == NOT_REPLAYED).sum(),
        ("new", "found before"): new["signature"].isin(run.since["signature"]).sum(),
        ("", "known"): (is_believed(run.findings) & run.findings["known"]).sum(),
        ("", "fixed since"): (state == FIXED).sum(),
        ("", "not met, still showing"): (state == SHOWS).sum(),
        ("", "not seen again"): state.isin([UNCLEAR, NOT_RUN]).sum(),
    }
    rows = [(of, what, count) for (of, what), count in counts.items()]
    return pd.DataFrame(rows, columns=["of", "what", "count"]).astype(
        {"of": "string", "what": "string", "count": "int64"}
    )


def since_table(since: pd.DataFrame) -> pd.DataFrame:
    """One row per fault of an earlier run, fixed ones first and those met again last.

    ``words`` says the state to people, and ``told`` what it rests on.
    """
    ranks = {state: rank for rank, state in enumerate(SINCE_WORDS)}
    order = since["state"].map(ranks).astype("float64").fillna(len(ranks))
    words = [SINCE_WORDS.get(state, state) for state in since["state"]]
    told = [_told(state, *rest) for state, *rest in zip(*(since[name] for name in _TELLING), strict=True)]
    table = since.assign(order=order, words=words, told=told).astype({"words": "string", "told": "string"})
    return table.sort_values("order", kind="stable").drop(columns="order").reset_index(drop=True)


def _told(state: str, detail: str, reruns: int, count: int) -> str:
    if state == FIXED:
        return f"clean in {reruns} of {reruns} runs of its program"
    if state == SHOWS:
        return f"in run {reruns} of its program"
    return f"{count:,} times" if state == MET else detail
