"""The rules of each speculative algorithm's numbers: draft steps, branches and rows; ints alone, no SGLang, no torch."""

from __future__ import annotations

ALGORITHMS = ("", "EAGLE", "NGRAM", "DFLASH", "DSPARK")
BLOCKS = ("DFLASH", "DSPARK")  # of one step and one branch each


def has_draft_model(algorithm: str) -> bool:
    """Whether a draft model's own steps are driven: of NGRAM there is none, and those of BLOCKS are left out."""
    return algorithm == "EAGLE"


def shape_of(algorithm: str, topk: int) -> str:
    """What verified drafts are shaped like: EAGLE's chain or tree, or what the other algorithms make of it."""
    if not has_draft_model(algorithm):
        return algorithm.lower()
    return "chain" if topk == 1 else "tree"


def ngram_depth(width: int) -> int:
    """Depth that a draft of ``width`` rows from a corpus has here for certain, the root not counted: half of its rows."""
    return width // 2


def reserve(algorithm: str, steps: int, topk: int, width: int, page: int) -> int:
    """A, the KV slots one speculative step may write per request: max(s*k, w).

    With several branches and pages above 1 each branch starts on a page of its own: max(((2*ps - 2 + s) // ps) * ps * k, w).
    Drafts without KV have none. Source: SGLang's speculative allocation sizing.
    """
    if not has_draft_model(algorithm):
        return width
    if topk > 1 and page > 1:
        return max(((2 * page - 2 + steps) // page) * page * topk, width)
    return max(steps * topk, width)


def fault_of(algorithm: str, steps: int, topk: int, width: int) -> str:
    """What is wrong with a world's ``spec_*``, what was expected; "" where nothing is."""
    if not algorithm:
        return "world.spec_* are set but spec_algorithm is empty; expected all 0" if steps or topk or width else ""
    if algorithm == "NGRAM" and topk and steps != width // topk:
        return f"world.spec_steps is {steps}; of NGRAM SGLang makes width // topk = {width // topk}"
    if not (1 <= steps and 1 <= topk and 2 <= width):
        return f"world speculative {steps=} {topk=} {width=}; expected >=1, >=1, >=2"
    if algorithm in BLOCKS and (steps, topk) != (1, 1):
        return f"world speculative {steps=} {topk=}; of {algorithm} SGLang makes both 1"
    return _fault_of_tree(steps, topk, width) if has_draft_model(algorithm) else ""


def _fault_of_tree(steps: int, topk: int, width: int) -> str:
    if topk == 1 and width != steps + 1:
        return f"world.spec_draft_tokens is {width}; with topk 1 SGLang forces steps + 1 = {steps + 1}"
    # The tree has the root and at most k + (s-1)*k*k drafted candidates.
    most = 1 + topk + (steps - 1) * topk * topk
    if width > most:
        return f"world.spec_draft_tokens is {width}; a tree of {steps=} {topk=} has at most {most}"
    return ""
