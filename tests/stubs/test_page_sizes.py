"""The page sizes of backends that take only some, and what each release says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.worlds import page_sizes_for
from stubs.page_sizes import smallest_page
from tests.stubs.test_imports import INSTALL, run


def test_a_pair_has_the_sizes_that_both_halves_take() -> None:
    assert page_sizes_for("triton:trtllm_mha", {}) == (16, 32, 64)
    assert page_sizes_for("trtllm_mha:trtllm_mha", {}) == (16, 32, 64)


def test_the_smallest_page_is_the_larger_ones() -> None:
    assert (smallest_page("triton", "fa3"), smallest_page("triton", "trtllm_mha")) == (1, 16)


ASKED = (
    INSTALL
    + """
from stubs import sglang_imports, sglang_platform
sglang_imports.import_attention()
sglang_platform.prepare_platform()
from stubs.fake_server import build_fake_server
from stubs.refusal import Refused
from stubs.world import World
answer = {}
for size in (8, 16, 32, 64):
    try:
        build_fake_server(World(prefill="triton", decode="trtllm_mha", page_size=size)).close()
        answer[str(size)] = ""
    except Refused as refused:
        answer[str(size)] = refused.reason
"""
)


@pytest.mark.release
@pytest.mark.parametrize("version", ["0.5.11", "0.5.23"])
def test_sglang_serves_trtllm_mha_with_pages_of_16_to_64(version: str, target_folder: Callable[[str], Path]) -> None:
    refused = "ServerArgs: triton:trtllm_mha does not support page_size 8: SGLang serves it with 64"
    assert run(ASKED, target_folder(version)) == {"8": refused, "16": "", "32": "", "64": ""}
