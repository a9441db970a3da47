"""What a wrapper wraps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def children_of(wrapper: Any) -> Iterator[tuple[str, Any]]:
    """Each attribute that holds a child, and the child: what shares a base class with the wrapper."""
    bases = tuple(base for base in type(wrapper).__mro__[1:] if base is not object)
    for held, child in getattr(wrapper, "__dict__", {}).items():
        if bases and isinstance(child, bases) and child is not wrapper:
            yield held, child
