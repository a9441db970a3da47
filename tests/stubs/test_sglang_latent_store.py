"""Latent KV is stored the way of a GPU: the platform says that Triton runs while it is written, and at no other time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from stubs import sglang_latent_store


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    supports_triton: bool = False


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A release whose store notes what its platform says; ``asked`` holds the answers."""
    platform, asked = SimpleNamespace(capabilities=Capabilities()), []

    def write(*args: Any, fail: bool = False) -> None:
        asked.append(platform.capabilities.supports_triton)
        if fail:
            raise ValueError("full")

    store = SimpleNamespace(_set_mla_kv_buffer_impl=write, set_mla_kv_buffer_naive=write)
    names = {"current_platform": platform}
    monkeypatch.setattr(
        sglang_latent_store,
        "find",
        lambda place: names.get(place.split(":")[1]) or vars(store).get(place.split(":")[1]),
    )
    monkeypatch.setattr(sglang_latent_store, "load", lambda path: store)
    sglang_latent_store.store_by_triton()
    return SimpleNamespace(store=store, platform=platform, asked=asked)


def test_triton_runs_while_it_is_written(release: Any) -> None:
    release.store._set_mla_kv_buffer_impl("buffer")
    assert (release.asked, release.platform.capabilities.supports_triton) == ([True], False)


def test_also_where_the_write_fails(release: Any) -> None:
    with pytest.raises(ValueError, match="full"):
        release.store._set_mla_kv_buffer_impl("buffer", fail=True)
    assert not release.platform.capabilities.supports_triton


def test_nothing_overlaps(release: Any) -> None:
    assert release.store.is_arch_support_pdl() is False


def test_a_second_call_changes_nothing(release: Any) -> None:
    write = release.store._set_mla_kv_buffer_impl
    sglang_latent_store.store_by_triton()
    assert release.store._set_mla_kv_buffer_impl is write
