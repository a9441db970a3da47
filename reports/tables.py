"""The tables of a report: pure functions from DataFrame to DataFrame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fuzz.finding import CORRUPT
from fuzz.trace import MODES
from reports.load import VERDICTS
from reports.replays import replay_of

FINDING_COLUMNS = (
    "signature",
    "title",
    "verdict",
    "known",
    "earlier",
    "pair",
    "mode",
    "runner",
    "target",
    "reliability",
    "replay",
    "count",
    "first_seconds",
    "first_programs",
    "shrunk_ops",
    "script",
)


def is_new(findings: pd.DataFrame) -> pd.Series[bool]:
    """Which findings make a run exit 1: bugs that nobody knew."""
    return is_believed(findings) & ~findings["known"]


def is_believed(findings: pd.DataFrame) -> pd.Series[bool]:
    """Which are faults of the target, on valid programs, that no control has dismissed."""
    return (findings["verdict"] == "bug") & ~is_corrupt(findings) & ~is_dismissed(findings)


def is_dismissed(findings: pd.DataFrame) -> pd.Series[bool]:
    """Which are no findings, as their negative control says: rounding alone made the difference."""
    return findings["dismissed"] != ""


def dismissed_table(findings: pd.DataFrame) -> pd.DataFrame:
    """One row per difference that is no finding, with the reason why."""
    table = findings[is_dismissed(findings)].sort_values("signature", kind="stable")
    return table[["signature", "pair", "mode", "dismissed", "count"]].reset_index(drop=True)


def is_corrupt(findings: pd.DataFrame) -> pd.Series[bool]:
    """Which findings tell of a corrupted input that was taken; they stand apart from those on valid programs."""
    return findings["oracle"] == CORRUPT


def corrupt_table(findings: pd.DataFrame) -> pd.DataFrame:
    """One row per corrupted input that was taken: ``outcome`` is silent (a wrong answer) or caught (by the harness).

    ``expected`` is what would have been right: a refusal, or the same answer.
    """
    table = findings[is_corrupt(findings)].sort_values(["kind", "place"], kind="stable")
    evidence = [[str(told.get(name, "")) for told in table["evidence"]] for name in ("outcome", "expected")]
    columns = ["kind", "place", "pair", "mode", "title", "message", "count", "script"]
    return table[columns].assign(outcome=evidence[0], expected=evidence[1]).reset_index(drop=True)


def findings_table(findings: pd.DataFrame, since: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per finding, in the order in which they were found; columns FINDING_COLUMNS.

    ``reliability`` is "k/N": the fault showed in k of N runs of the saved program; ``replay`` is one of REPLAYS.
    ``earlier`` is whether the run of ``since`` (Run.since) had found it, too.
    """
    table = findings.sort_values(["first_seconds", "signature"], kind="stable")
    reliability = table["shown"].astype("string") + "/" + table["runs"].astype("string")
    earlier = table["signature"].isin([] if since is None else since["signature"])
    told = table.assign(reliability=reliability, replay=replay_of(table), earlier=earlier)
    return told[list(FINDING_COLUMNS)].reset_index(drop=True)


def pair_mode_table(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per pair and step mode: the number of steps of each verdict, ``total``, and ``share`` of the pair's steps."""
    table = (
        steps.pivot_table(
            index=["pair", "mode"], columns="verdict", values="count", aggfunc="sum", fill_value=0, observed=True
        )
        .reindex(columns=list(VERDICTS), fill_value=0)
        .astype("int64")
        .reset_index()
    )
    table.columns = pd.Index([str(name) for name in table.columns])
    table["total"] = table[list(VERDICTS)].sum(axis=1).astype("int64")
    table["share"] = (table["total"] / table.groupby("pair")["total"].transform("sum")).astype("float64")
    return table.sort_values(["pair", "mode"], key=_mode_rank, kind="stable").reset_index(drop=True)


def _mode_rank(column: pd.Series[Any]) -> pd.Series[Any]:
    """Modes in the order a request meets them; one that a newer program brought along comes last."""
    if column.name != "mode":
        return column
    return column.map({mode: rank for rank, mode in enumerate(MODES)}).astype("float64").fillna(len(MODES))


def verdict_table(records: pd.DataFrame) -> pd.DataFrame:
    """One row per verdict, all five of them: ``programs`` and ``share``."""
    programs = records["verdict"].value_counts().reindex(list(VERDICTS), fill_value=0)
    table = pd.DataFrame({"verdict": list(VERDICTS), "programs": programs.to_numpy(dtype="int64")})
    table["share"] = table["programs"] / max(int(table["programs"].sum()), 1)
    return table


def reason_table(records: pd.DataFrame) -> pd.DataFrame:
    """Why programs were not ``ok`` nor ``bug``: verdict, reason, number of programs; the most frequent first."""
    other = records[~records["verdict"].isin(["ok", "bug"])]
    table = other.groupby(["verdict", "reason"], observed=True, as_index=False).agg(programs=("program", "size"))
    return table.sort_values(["programs", "reason"], ascending=[False, True], kind="stable").reset_index(drop=True)


def throughput_table(records: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of ``by`` (pair, worker, ...): programs, steps, and how many a second.

    ``busy_seconds`` is the time spent in these programs, over all workers; the rates are per busy second.
    """
    table = records.groupby(by, observed=True, as_index=False).agg(
        programs=("program", "size"), steps=("steps", "sum"), busy_seconds=("seconds", "sum")
    )
    busy = table["busy_seconds"].where(table["busy_seconds"] > 0)
    table["programs_per_second"] = table["programs"] / busy
    table["steps_per_second"] = table["steps"] / busy
    return table


def over_time_table(records: pd.DataFrame, bins: int = 48) -> pd.DataFrame:
    """The run cut into ``bins`` equal spans: ``until_seconds``, programs and steps a second in it, totals up to its end.

    48 spans: a point every ten minutes of a night.
    """
    columns = ["until_seconds", "programs_per_second", "steps_per_second", "programs", "steps"]
    end = float(records["elapsed_seconds"].max()) if len(records) else 0.0
    if end <= 0:
        return pd.DataFrame(columns=columns, dtype="float64")
    edges = np.linspace(0.0, end, bins + 1)
    span = np.clip(np.searchsorted(edges, records["elapsed_seconds"], side="left") - 1, 0, bins - 1)
    index = pd.RangeIndex(bins)
    programs = records.groupby(span).size().reindex(index, fill_value=0)
    steps = records.groupby(span)["steps"].sum().reindex(index, fill_value=0)
    values = (edges[1:], programs * bins / end, steps * bins / end, programs.cumsum(), steps.cumsum())
    return pd.DataFrame(dict(zip(columns, values, strict=True)), index=index)


def first_seen_table(findings: pd.DataFrame) -> pd.DataFrame:
    """One row per fault of the target, known ones too, in the order in which they were met; ``count`` is how often."""
    faults = findings[is_believed(findings)].sort_values(["first_seconds", "signature"], kind="stable")
    table = faults[["signature", "pair", "first_seconds", "first_programs", "count"]]
    return table.assign(new=~faults["known"]).reset_index(drop=True)
