"""What SGLang's runner of eager steps makes of a batch before it plans it: by its own code, which plans and runs nothing here."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from stubs.sglang import find

_RUNNER = "sglang.srt.model_executor.runner.eager_runner:EagerRunner"


def as_run(forward_batch: Any) -> None:
    """Change ``forward_batch`` as this release's runner does: from 0.5.19 on a mixed one is an extend."""
    runner = _runner()
    if runner is not None:
        runner.execute(forward_batch)


@functools.cache
def _runner() -> Any:
    """The release's runner, whose steps are left out; None up to 0.5.13, which has none and plans a batch as it is."""
    cls = find(_RUNNER)
    if cls is None:
        return None
    left_out = {name: _nothing for name in ("_execute_decode", "_execute_idle", "_execute_extend")}
    own = type("EagerRunner", (cls,), {"__module__": __name__, "model_context": _context, **left_out})
    return own.__new__(own)


def _nothing(self: Any, forward_batch: Any, pp_proxy_tensors: Any = None) -> None:
    """In place of a step."""


def _context(self: Any) -> contextlib.nullcontext[None]:
    """In place of a model's layout of experts (0.5.23)."""
    return contextlib.nullcontext()
