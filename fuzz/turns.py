"""Whose turn it is: the pair and the kind of world that a seed's program is drawn from."""

from __future__ import annotations

from dataclasses import replace

from fuzz.limits import Limits
from fuzz.worlds import modes_of
from stubs.latent_worlds import LATENT_ONLY

# Of the programs of a pair and kind, every so many-th captures graphs.
GRAPH_EVERY, DRAFTS_GRAPH_EVERY = 3, 2  # a draft has four kinds of graph, a plain world has one
# Every so many-th program is of a pair that serves latent attention alone: rows are 16 times as wide, and cost as much
# more.
LATENT_EVERY = 5


def stratum(seed: int, limits: Limits) -> Limits:
    """``limits`` narrowed to one pair and one kind of world, by turns."""
    if limits.worlds:
        return limits
    turn, place, pair = _turn(seed, limits.pairs)
    modes = modes_of(pair, limits.speculative)
    kinds = [(shape, {mode: steps}) for mode, steps in modes.items() for shape in limits.shapes] or [("plain", {})]
    # Shifted by the pair's place: neighbours in a round are of different kinds.
    kind = (turn + place) % len(kinds)
    shape, mode = kinds[kind]
    # Of one round over the kinds every third (of drafts, every second) captures graphs, in the next round the others.
    every = GRAPH_EVERY if shape == "plain" else DRAFTS_GRAPH_EVERY
    graph = 1 if (turn // len(kinds) + kind) % every == 0 else 0
    return replace(limits, pairs=(pair,), speculative={pair: mode}, shapes=(shape,), graph=graph)


def _turn(seed: int, pairs: tuple[str, ...]) -> tuple[int, int, str]:
    """(how often the pair has been had before, its place among those like it, the pair)."""
    latent = tuple(pair for pair in pairs if set(pair.split(":")) & set(LATENT_ONLY))
    others = tuple(pair for pair in pairs if pair not in latent)
    if latent and others:
        share, rest = divmod(seed, LATENT_EVERY)
        is_latent = rest == LATENT_EVERY - 1
        pairs, seed = (latent, share) if is_latent else (others, seed - share)
    turn, place = divmod(seed, len(pairs))
    return turn, place, pairs[place]
