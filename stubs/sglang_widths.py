"""How many tokens a request has in a speculative step, as SGLang's EAGLE worker tells those who pad: from its source."""

from __future__ import annotations

import inspect
import re

from stubs.refusal import Refused
from stubs.sglang import find
from stubs.world import World

WORKER = "sglang.srt.speculative.eagle_worker_v2"
PER_REQUEST = ("num_tokens_per_req", "num_tokens_per_batch")  # the second up to 0.5.8
WIDTHS = (*PER_REQUEST, "num_tokens_for_logprob_per_req", "num_tokens_for_logprob_per_batch")
_TOLD = re.compile(r"\bnum_tokens_per_(?:req|batch) ?= ?(self\.[^,#\n]*[^,#\s])")


def draft_extend_width(world: World) -> int | None:
    """Of the draft model's extend; None where the worker tells none (0.5.5)."""
    return _told("EagleDraftWorker", "_draft_extend_for_decode", world)


def verify_width(world: World) -> int | None:
    """Of the verify; None where the worker leaves it to the verify input (to 0.5.6, and from 0.5.16 on)."""
    return _told("EAGLEWorkerV2", "verify", world)


def _told(cls: str, name: str, world: World) -> int | None:
    method = getattr(find(f"{WORKER}:{cls}"), name, None)
    if method is None:
        raise Refused(f"this release has no {cls}.{name}")
    told = _TOLD.search(inspect.getsource(method))
    if told is None:
        return None
    widths = {
        "self.speculative_num_steps + 1": world.spec_steps + 1,
        "self.speculative_num_draft_tokens": world.spec_draft_tokens,
    }
    if told[1] not in widths:
        raise Refused(f"this release's worker pads to {told[1]} tokens a request, of which nothing is known here")
    return widths[told[1]]
