"""Lets the Python part of torchvision import beside a torch for which torchvision's compiled operators do not load."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch

_NAMESPACE = "torchvision"
OFFERS = ("torchvision, all but its compiled operators",)


def import_without_operators() -> None:
    """Import torchvision while registrations for its missing operators are dropped."""
    register_fake = torch.library.register_fake
    implement = torch.library.Library.impl

    def register_fake_elsewhere(op: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(op, str) and op.startswith(f"{_NAMESPACE}::"):
            return _identity
        return register_fake(op, *args, **kwargs)

    def implement_elsewhere(library: torch.library.Library, *args: Any, **kwargs: Any) -> Any:
        return None if library.ns == _NAMESPACE else implement(library, *args, **kwargs)

    with (
        patch.object(torch.library, "register_fake", register_fake_elsewhere),
        patch.object(torch.library.Library, "impl", implement_elsewhere),
    ):
        import_module(_NAMESPACE)


def _identity(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
