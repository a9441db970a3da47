"""Runs programs as ``fuzz.execute`` does, on a SGLang whose fa3 errs in ways that only a graph of a prefill punishes.

The program's seed, modulo the number of plants, says how; 0 is not at all.
"""

from __future__ import annotations

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang
from tests.fuzz.graph_plants import plants, run_planted

PLANTS = plants("_init_full_cg_prefill_metadata", "forward_extend", "page_table", holder="full_cg_prefill_metadata")

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    backend = sglang.load(f"{sglang.ATTENTION}.flashattention_backend").FlashAttentionBackend
    return run_planted(plain.execute, program, backend, PLANTS)
