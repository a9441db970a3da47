"""Ways to attend: the right one, and wrong ones that a fault of a backend comes to, each with the names of what is wrong."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from stubs.layer import Layer
from stubs.plan import RowPlan
from stubs.reference import same_chunk, visible

UNEXPLAINED = "wrong_output"


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to attend: the right one by default, or one with the things wrong that ``kinds`` name."""

    kinds: tuple[str, ...] = (UNEXPLAINED,)
    window_delta: int = 0
    ignores_window: bool = False
    ignores_chunk: bool = False
    chunk: int = 0  # the size of a chunk in place of the layer's
    window_for_chunk: int = -1  # the window in place of its chunks
    ignores_logit_cap: bool = False
    ignores_temperature: bool = False
    sinks_counted: int = 1  # how often a sink takes its weight
    ignores_tree: bool = False
    knows_no_encoder: bool = False  # all layers read a row's first entries, as many as the request's own tokens
    masks_encoder: bool = False  # a causal mask over an encoder's tokens, the last query at the last of them
    sees_future: bool = False  # no causal mask: the step's own later keys, too
    split: int = 0  # of a request that two halves of a batch share: its first so many tokens, which see no later ones
    keys_hidden: int = 0  # newest committed keys that no query sees
    ignores_prefix: bool = False
    ignores_own: bool = False  # the prefix alone is seen
    counts_own_twice: bool = False  # the step's own KV is taken for prefix, too, which every query sees
    own_as_given: bool = False  # the step's own KV is not rounded as the pool's is: right as well
    q_rounded: bool = False  # queries are rounded to the pool's fp8, too: right as well
    # KV is what the pool holds, and not what it ought to hold, read "scaled", "unscaled" or, "keys", with keys scaled alone.
    pool: str = ""


# What has gone wrong in attention backends again and again: one limit forgotten, or one token too many or too few.
EXPLANATIONS = (
    Rule(("window_ignored",), ignores_window=True),
    Rule(("window_short_by_one",), window_delta=-1),
    Rule(("window_long_by_one",), window_delta=1),
    Rule(("chunk_ignored",), ignores_chunk=True),
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
# In models that have one.
ENCODER_EXPLANATIONS = (
    Rule(("encoder_masked",), masks_encoder=True),
    Rule(("encoder_ignored",), knows_no_encoder=True),
)
# Where KV is kept scaled: the fault is of whoever stored it, or of this reader.
SCALE_EXPLANATIONS = (
    Rule(("stored_kv_wrong",), pool="scaled"),
    Rule(("kv_scale_ignored",), pool="unscaled"),
    Rule(("value_scale_ignored",), pool="keys"),
)
# What one backend may leave out beside another: two or three of these are a fault each.
LEFT_OUT: dict[str, dict[str, Any]] = {
    "window_ignored": {"ignores_window": True},
    "chunk_ignored": {"ignores_chunk": True},
    "logit_cap_ignored": {"ignores_logit_cap": True},
    "temperature_ignored": {"ignores_temperature": True},
    "tree_mask_ignored": {"ignores_tree": True},
    "causal_mask_ignored": {"sees_future": True},
    "own_kv_unseen": {"ignores_own": True},
    "stored_kv_wrong": {"pool": "scaled"},
    "kv_scale_ignored": {"pool": "unscaled"},
    "value_scale_ignored": {"pool": "keys"},
}
SEVERAL_LEFT_OUT = tuple(
    Rule(kinds, **dict(ChainMap(*(LEFT_OUT[kind] for kind in kinds))))
    for count in (2, 3)
    for kinds in combinations(LEFT_OUT, count)
    if sum("pool" in LEFT_OUT[kind] for kind in kinds) <= 1  # the pool is read in one way
)


def of_chunks(chunk: int) -> tuple[Rule, ...]:
    """What goes wrong with chunks of ``chunk`` positions: a window in their place, of as many keys or one more, or
    chunks of another size. None without chunks.
    """
    if not chunk:
        return ()
    windows = (Rule(("window_for_chunk",), window_for_chunk=window) for window in (chunk - 1, chunk))
    sizes = (size for size in range(1, 2 * chunk + 1) if size != chunk)
    return (*windows, *(Rule(("chunk_of_wrong_size",), chunk=size) for size in sizes))


def mask_of(layer: Layer, row: RowPlan, rule: Rule) -> torch.Tensor:
    """bool [count, prefix + count]. Over a tree no window is drawn: see the generator's worlds."""
    length = row.prefix + row.count
    if layer.is_cross:
        return _encoder_mask(row, rule)
    positions = torch.arange(length)
    if row.tree is not None and not rule.ignores_tree:
        mask = torch.ones(row.count, length, dtype=torch.bool)
        mask[:, row.prefix :] = row.tree
        positions[row.prefix :] = row.prefix + row.tree.sum(1) - 1  # a node sees its path: as deep as that is long
    else:
        mask = visible(row.count, length, _window(layer, rule))
        if rule.sees_future:
            future = torch.ones_like(mask).triu(row.prefix + 1)
            future[: rule.split, row.prefix + rule.split :] = False
            mask |= future
    chunk = rule.chunk or layer.chunk
    if layer.chunk and not rule.ignores_chunk and rule.window_for_chunk < 0:
        mask = mask & same_chunk(positions[row.prefix :], positions, chunk)
    if rule.ignores_own:
        mask[:, row.prefix :] = False
    if rule.ignores_prefix:
        mask[:, : row.prefix] = False
    elif rule.keys_hidden:
        mask[:, max(0, row.prefix - rule.keys_hidden) : row.prefix] = False
    mask[:, : row.encoder] = False
    return mask


def _encoder_mask(row: RowPlan, rule: Rule) -> torch.Tensor:
    """bool [count, encoder]: a layer of cross attention sees all of its encoder."""
    length = row.encoder
    mask = torch.ones(row.count, length, dtype=torch.bool)
    if rule.masks_encoder:
        mask &= torch.arange(length) <= torch.arange(length - row.count, length)[:, None]
    if rule.ignores_prefix:
        mask[:] = False
    elif rule.keys_hidden:
        mask[:, max(0, length - rule.keys_hidden) :] = False
    return mask


def _window(layer: Layer, rule: Rule) -> int:
    """The window of a layer that is no tree's, as `visible` takes it."""
    if layer.chunk:
        return rule.window_for_chunk
    return layer.window + rule.window_delta if layer.window and not rule.ignores_window else -1
