"""What tests of closed kernels share: that a call is refused, and over which argument of which function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stubs.kernels.contract import ContractBreach


@contextmanager
def refused(function: str, argument: str, request: int | None = None) -> Iterator[None]:
    """What runs within breaks the contract of ``function`` by this argument; ``request`` is whose fault it is, if one's."""
    with pytest.raises(ContractBreach) as caught:
        yield
    breach = caught.value
    assert (breach.function, breach.argument, breach.request) == (function, argument, request)
