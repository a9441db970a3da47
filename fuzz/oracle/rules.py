"""The wrong ways to attend that the numeric oracle tries on a wrong output, and the names that they give to faults."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from itertools import combinations
from typing import Any

UNEXPLAINED = "wrong_output"


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to attend: the right one by default, or one with the things wrong that ``kinds`` name."""

    kinds: tuple[str, ...] = (UNEXPLAINED,)
    window_delta: int = 0
    ignores_window: bool = False
    ignores_logit_cap: bool = False
    ignores_temperature: bool = False
    sinks_counted: int = 1  # how often a sink takes its weight
    ignores_tree: bool = False
    sees_future: bool = False  # no causal mask: the step's own later keys, too
    keys_hidden: int = 0  # newest committed keys that no query sees
    ignores_prefix: bool = False
    ignores_own: bool = False  # the prefix alone is seen
    counts_own_twice: bool = False  # the step's own KV is taken for prefix, too, which every query sees
    own_as_given: bool = False  # the step's own KV is not rounded as the pool's is: right as well
    pool: str = ""  # "scaled" or "unscaled": the prefix is what the pool holds, so read, and not what it ought to hold


# What has gone wrong in attention backends again and again: one limit forgotten, or one token too many or too few.
EXPLANATIONS = (
    Rule(("window_ignored",), ignores_window=True),
    Rule(("window_short_by_one",), window_delta=-1),
    Rule(("window_long_by_one",), window_delta=1),
    Rule(("logit_cap_ignored",), ignores_logit_cap=True),
    Rule(("temperature_ignored",), ignores_temperature=True),
    Rule(("sinks_ignored",), sinks_counted=0),
    Rule(("sinks_counted_twice",), sinks_counted=2),
    Rule(("tree_mask_ignored",), ignores_tree=True),
    Rule(("causal_mask_ignored",), sees_future=True),
    Rule(("prefix_ignored",), ignores_prefix=True),
    Rule(("own_kv_unseen",), ignores_own=True),
    Rule(("newest_prefix_key_unseen",), keys_hidden=1),
    Rule(("own_kv_counted_twice",), counts_own_twice=True),
)
# Where KV is kept scaled: the fault is of whoever stored it, or of this reader.
SCALE_EXPLANATIONS = (Rule(("stored_kv_wrong",), pool="scaled"), Rule(("kv_scale_ignored",), pool="unscaled"))
# What one backend may leave out beside another: two or three of these are a fault each.
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "window_ignored": {"ignores_window": True},
    "logit_cap_ignored": {"ignores_logit_cap": True},
    "temperature_ignored": {"ignores_temperature": True},
    "tree_mask_ignored": {"ignores_tree": True},
    "causal_mask_ignored": {"sees_future": True},
    "kv_scale_ignored": {"pool": "unscaled"},
}
SEVERAL_LEFT_OUT = tuple(
    Rule(kinds, **dict(ChainMap(*(_LEFT_OUT[kind] for kind in kinds))))
    for count in (2, 3)
    for kinds in combinations(_LEFT_OUT, count)
)
