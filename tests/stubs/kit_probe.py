"""Runs SGLang's own kit for attention backends over what stands in here, and prints what came of each case.

Run by test_kit.py in a process of its own: ``kit_probe.py TARGET ROOT``. A case is "ok", or the error's type and text.
Beside them, what SGLang says when a server is to verify chains or trees of drafts with that backend alone.
"""

from __future__ import annotations

import json
import sys
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

BACKENDS = ("triton", "torch_native", "fa3", "flashinfer", "trtllm_mha")
# Kinds of speculative input, each with a chain and, where its drafts can branch, with a tree of three nodes.
CHAINS = ("eagle", "ngram", "frozen_kv_mtp", "dflash")
TREES = ("eagle", "ngram", "frozen_kv_mtp")
KIT = "sglang.test.kits.attention_unittest"
# The kit's server says 0 branches; this backend plans trees by what the server says, and not by the batch's input.
ASKING_TOPK = ("fa3",)

Case = tuple[str, Callable[[], None]]


def main() -> None:
    target, root = sys.argv[1:]
    sys.path[:0] = [target, root]
    from stubs import imports, sglang, sglang_platform

    imports.install()
    sglang.load("sglang.srt.layers.attention.hybrid_attn_backend")
    sglang_platform.prepare_platform()
    from stubs import interpreter

    interpreter.install()
    answers = {"outcomes": {name: dict(_outcomes(name)) for name in BACKENDS}}
    print(json.dumps(answers | {"refusals": {name: _refusals(name) for name in BACKENDS}}))


def _refusals(backend: str) -> dict[str, str]:
    """SGLang's reason against a server with drafts of one branch, and of two; "" where it starts."""
    from stubs.fake_server import build_fake_server
    from stubs.page_sizes import smallest_page
    from stubs.refusal import Refused
    from stubs.world import World

    found = {}
    for name, topk in (("chain", 1), ("tree", 2)):
        drafts = {"spec_algorithm": "EAGLE", "spec_steps": 1, "spec_topk": topk, "spec_draft_tokens": topk + 1}
        pair = {"prefill": backend, "decode": backend, "page_size": smallest_page(backend)}
        try:
            build_fake_server(World(**pair | drafts)).close()  # type: ignore[arg-type]
        except Refused as refused:
            found[name] = refused.reason
        else:
            found[name] = ""
    return found


def _outcomes(backend: str) -> Iterator[tuple[str, str]]:
    import torch

    from stubs import interpreter

    for name, run in (*_dense(backend), *_verify(backend)):
        try:
            with torch.no_grad(), interpreter.checked([]) as log:
                run()
            yield name, "; ".join(map(str, log.violations)) or "ok"
        except (Exception, unittest.SkipTest) as error:  # noqa: BLE001 - whatever the kit raises is the answer
            yield name, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _dense(backend: str) -> Iterator[Case]:
    """Extend and decode: the kit's input layouts, head layouts and window edges."""
    from importlib import import_module

    dense: Any = import_module(f"{KIT}.attention_methods.dense_attention")
    cases = (
        *dense.make_dense_cases(backend),
        *dense.make_swa_no_prefix_input_config_cases(backend),
        *dense.make_swa_prefix_input_config_cases(backend),
    )
    for case in cases:
        yield case.name, lambda case=case: dense.run_dense_attention_case(unittest.TestCase(), case, device="cpu")


def _verify(backend: str) -> Iterator[Case]:
    """Target verify of every kind of draft: two requests, behind and across the end of a page."""
    from importlib import import_module

    dense: Any = import_module(f"{KIT}.attention_methods.dense_attention")
    runner: Any = import_module(f"{KIT}.runner_modes.speculative_target_verify_runner")
    mode: Any = import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode.TARGET_VERIFY
    for topk, kinds, width in ((1, CHAINS, 4), (2, TREES, 3)):
        for kind in kinds:
            case = dense.DenseAttentionCase(
                name=f"verify_{kind}_topk{topk}",
                backend=backend,
                forward_mode=mode,
                num_heads=4,
                num_kv_heads=2,
                page_size=16,
                prefix_lens=(3, 15),
                extend_lens=(width, width),
            )
            options = {"topk": topk, "spec_kind": kind, "device": "cpu"}
            told = topk if backend in ASKING_TOPK and topk > 1 else 0
            yield case.name, partial(_run_verify, runner, case, options, told)


def _run_verify(runner: Any, case: Any, options: dict[str, Any], told: int) -> None:
    """``told`` branches, if any, are what the backend and the batch are told of that the kit leaves out."""
    build = runner.build_dense_attention_fixture

    def build_told(*args: Any, **kwargs: Any) -> Any:
        from stubs import sglang

        fixture = build(*args, **kwargs)
        fixture.backend.topk = told
        fixture.forward_batch.spec_algorithm = sglang.spec_algorithm("EAGLE")
        return fixture

    with patch.object(runner, "build_dense_attention_fixture", build_told if told else build):
        runner.run_dense_spec_verify_case(unittest.TestCase(), case, **options)


if __name__ == "__main__":
    main()
