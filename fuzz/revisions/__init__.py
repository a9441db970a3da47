"""Saved repros on other revisions of SGLang: does it still show, where, since when, is there a smaller one."""

from fuzz.bisection import BisectResult
from fuzz.comparison import Cell, CompareResult
from fuzz.repro import read_program
from fuzz.revisions.bisect import bisect_commits, bisect_releases, refine
from fuzz.revisions.compare import compare
from fuzz.revisions.replay import ReplayResult, replay, replay_all
from fuzz.revisions.rig import CANNOT_TELL, NOT_SHOWN, SHOWN, Rig
from fuzz.revisions.sanitized import replay_sanitized
from fuzz.revisions.smaller import ShrinkResult, shrink_path

__all__ = [
    "CANNOT_TELL",
    "NOT_SHOWN",
    "SHOWN",
    "BisectResult",
    "Cell",
    "CompareResult",
    "ReplayResult",
    "Rig",
    "ShrinkResult",
    "bisect_commits",
    "bisect_releases",
    "compare",
    "read_program",
    "refine",
    "replay",
    "replay_all",
    "replay_sanitized",
    "shrink_path",
]
