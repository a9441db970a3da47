"""What a run found, for people: DataFrames, and Markdown, CSV, HTML and JUnit made from them."""

from reports.bisection import bisection_steps, write_bisection
from reports.comparison import comparison_cells, comparison_matrix, write_comparison
from reports.contrast import contrast_table, write_contrast
from reports.load import Run, load_findings, load_records, load_run, load_steps
from reports.morning import overview_table, since_table
from reports.render import write_reports
from reports.replays import replay_of
from reports.tables import (
    findings_table,
    first_seen_table,
    over_time_table,
    pair_mode_table,
    reason_table,
    throughput_table,
    verdict_table,
)

__all__ = [
    "Run",
    "bisection_steps",
    "comparison_cells",
    "comparison_matrix",
    "contrast_table",
    "findings_table",
    "first_seen_table",
    "load_findings",
    "load_records",
    "load_run",
    "load_steps",
    "over_time_table",
    "overview_table",
    "pair_mode_table",
    "reason_table",
    "replay_of",
    "since_table",
    "throughput_table",
    "verdict_table",
    "write_bisection",
    "write_comparison",
    "write_contrast",
    "write_reports",
]
