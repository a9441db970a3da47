"""One live request as a ledger keeps it, and how long requests may get.

Sources of the limits, in SGLang: ``managers/tp_worker.py`` and ``managers/scheduler.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from fuzz.program import Row
from stubs.speculation import BLOCKS, ngram_depth
from stubs.world import World


class State(Enum):
    """Where a request stands; KEPT is finished with its KV in the prefix cache, GONE is finished without."""

    RUNNING = "running"
    CHUNKED = "mid-chunk"
    RETRACTED = "retracted"
    KEPT = "finished and cached"
    GONE = "finished"


class InvalidOp(Exception):
    """An op that cannot come next; ``what`` is given, ``expected`` is the rule."""

    def __init__(self, what: str, expected: str) -> None:
        super().__init__(f"{what}; expected {expected}")


@dataclass(slots=True)
class Request:
    """One request. Lengths are in tokens, ``pages`` holds page numbers in order of position.

    ``length`` is L, the KV committed. ``cacheable``: the part of it that the prefix cache knows, which is what the
    last extend computed until the request finishes. ``owed``: the length a re-admitted request extends to, else 0.
    ``encoder``: how many of its first tokens are an encoder's.
    """

    state: State
    length: int = 0
    cacheable: int = 0
    owed: int = 0
    pages: list[int] = field(default_factory=list)
    encoder: int = 0


def check_encoder(world: World, row: Row, known: Sequence[Request]) -> None:
    """Raise InvalidOp where ``row`` has an encoder that its request cannot have.

    ``known``: the request as it was, and whose prefix it takes. SGLang takes an encoder's tokens as a whole, known or not,
    and has at least one token behind them (ScheduleBatch.prepare_encoder_info_extend).
    """
    name, encoder = f"request {row.request}", row.encoder
    if encoder and not world.encoder_decoder:
        raise InvalidOp(f"{name} has {encoder} tokens of an encoder", "0: the world has none")
    if row.more and world.encoder_decoder:
        raise InvalidOp(f"{name} is cut in a world with encoders", "a whole prompt: SGLang cuts none of such models")
    for other in known:
        if other.encoder != encoder:
            raise InvalidOp(
                f"{name} has {encoder} tokens of an encoder", f"{other.encoder}, as it had or its prefix has"
            )
    if row.cached and row.cached < encoder:
        raise InvalidOp(f"{name} knows {row.cached} tokens of its encoder's {encoder}", "all of them or none")
    if not row.cached and encoder and row.tokens <= encoder:
        raise InvalidOp(f"{name} extends by {row.tokens} tokens, {encoder} of them its encoder's", "one more at least")


def input_max(world: World) -> int:
    """Longest prompt: five below the longest request (managers/tp_worker.py)."""
    return min(world.context_len, world.max_total_tokens) - 1 - 5


def length_max(world: World) -> int:
    """Most tokens of KV a request has when its last step begins to run, that step's one token included.

    Prompt and output have at most min(context, pool) - 2 tokens, and the last one is never written; with overlap
    a finished request runs one step more (managers/scheduler.py, init_req_max_new_tokens); from 0.5.22 on only where
    one verify committed several tokens, for a request that its next token ends is left out (_reqs_finishing_inflight).
    """
    return min(world.context_len, world.max_total_tokens) - 3 + world.overlap


def accept_max(world: World) -> int:
    """Most tokens any verify can commit: the longest path that every tree has, and the bonus token.

    A tree's nodes are chosen by score out of k on the first level and k*k on each other; a parent never scores less
    than its child, so a level is reached for certain once the nodes outnumber all levels above it. Of what a corpus
    drafts ``ngram_depth`` is certain, of a block all.
    """
    if world.spec_algorithm in BLOCKS:
        return world.spec_draft_tokens
    if world.spec_algorithm == "NGRAM":
        return ngram_depth(world.spec_draft_tokens) + 1
    nodes, topk = world.spec_draft_tokens - 1, world.spec_topk
    depth, above = 0, 0
    while depth < world.spec_steps and nodes > above:
        depth, above = depth + 1, topk + depth * topk * topk
    return depth + 1
