"""Lengths oracle: whether a wrapper asks for host copies of lengths that nothing under it reads.

Checks, where it matters (a speculative step under overlap scheduling), the flag by which SGLang decides whether to copy
lengths to the host in every step, and wait for them: a wrapper that does not hand it on has the base class's, which
asks. Does not see that a backend asks for itself without need, nor other reads of device tensors.
"""

from __future__ import annotations

from fuzz.finding import Signature
from fuzz.oracle.view import Fault, StepView

_LEAVES = ("prefill_backend", "decode_backend")
_FLAG = "needs_cpu_seq_lens"  # from 0.5.13 on; before, lengths are always copied


def host_lengths_needed(view: StepView) -> list[Fault]:
    """A wrapper over two backends that need no host lengths needs none either."""
    # Two-batch overlap splits batches by their host lengths.
    if not view.plan.mode.startswith("verify") or not view.world.overlap or view.world.wrapper:
        return []
    leaves = [getattr(view.backend, name, None) for name in _LEAVES]
    if None in leaves or not getattr(view.backend, _FLAG, False):
        return []
    if any(
        getattr(leaf, _FLAG, True) for leaf in leaves
    ):  # SGLang, too, takes a backend without the flag for one that asks
        return []
    wrapper, names = type(view.backend).__name__, " and ".join(type(leaf).__name__ for leaf in leaves)
    return [
        Fault(
            Signature("state", "needless_host_lengths", f"{wrapper}.{_FLAG}"),
            f"{wrapper} asks for host lengths that no backend under it needs",
            f"{_FLAG} is True on {wrapper} and False on {names}: SGLang copies lengths to the host in every step",
        )
    ]
