"""The verbs of the command line: each reads its options, calls one function and prints what came of it."""

from fuzz.verbs import benches, bisects, campaigns, contrasts, corpora, coverages, inspections, revisits, supports
from fuzz.verbs.group import cli

__all__ = [
    "benches",
    "bisects",
    "campaigns",
    "cli",
    "contrasts",
    "corpora",
    "coverages",
    "inspections",
    "revisits",
    "supports",
]
