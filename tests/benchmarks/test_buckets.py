"""Buckets held against planted faults: what counts as one fault's own, and three plants on a release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fuzz.program import Decode, Extend, Program, Row
from stubs.world import World

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NARROW, LOCATED, FEW = "page table short of a column", "page table of locations", "room for three in decode"
A, B, C = (f"bounds/view/kernel.{name}" for name in "abc")
PAGE_TABLE = "bounds/contract_breach/flash_attn_with_kvcache.page_table"


@pytest.fixture(scope="module")
def buckets() -> Any:
    """The benchmark as a module."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(BENCHMARKS))
    import buckets

    yield buckets
    patch.undo()


def bucket(
    buckets: ModuleType, *owners: str, shown: tuple[str, ...] = (A,), whole: bool = True, release: bool = False
) -> Any:
    return buckets.Bucket(A, 1, whole, shown, owners, release)


def test_a_bucket_of_one_plant_that_shows_it_alone_is_its_own(buckets: ModuleType) -> None:
    assert bucket(buckets, NARROW).is_own
    assert bucket(buckets, release=True).is_own


@pytest.mark.parametrize(
    ("owners", "shown", "release"),
    [
        ((NARROW, FEW), (A,), False),  # two plants'
        ((NARROW,), (A,), True),
        ((), (A,), False),  # any plant will do, or no run shows it any more
        ((NARROW,), (A, B), False),
        ((NARROW,), (), False),
    ],
)
def test_a_bucket_that_is_not_one_faults_alone(
    buckets: ModuleType, owners: tuple[str, ...], shown: tuple[str, ...], release: bool
) -> None:
    assert not bucket(buckets, *owners, shown=shown, release=release).is_own


def test_a_program_may_show_what_lies_further_from_the_cause(buckets: ModuleType) -> None:
    wrong, breach = "numeric/wrong_output/B.decode", "bounds/contract_breach/kernel.argument"
    assert bucket(buckets, NARROW, shown=(A, breach, wrong)).is_own
    assert not replace(bucket(buckets, NARROW, shown=(A, wrong)), signature=wrong).is_own


def test_a_program_that_was_not_shrunk_may_show_more(buckets: ModuleType) -> None:
    assert bucket(buckets, NARROW, shown=(A, B), whole=False).is_own


def test_a_program_may_show_what_follows_from_the_same_fault(buckets: ModuleType) -> None:
    found = [replace(bucket(buckets, NARROW, shown=(A, B)), signature=name) for name in (A, B, C)]
    kin = buckets.with_kin(found, {A: "", B: A, C: ""})
    assert [one.kin for one in kin] == [(A, B), (A, B), (C,)]
    assert [one.is_own for one in kin] == [True, True, False]


def test_a_plant_without_a_bucket_that_is_its_alone_is_told(buckets: ModuleType) -> None:
    assert buckets.homeless([bucket(buckets, NARROW), bucket(buckets, FEW, LOCATED)], [NARROW, FEW, LOCATED]) == [
        FEW,
        LOCATED,
    ]


def test_a_plant_with_two_buckets_is_told_unless_one_follows_from_the_other(buckets: ModuleType) -> None:
    found = [replace(bucket(buckets, name), signature=sign) for name, sign in ((NARROW, A), (NARROW, B), (FEW, C))]
    names = [NARROW, FEW]
    assert buckets.crowded(buckets.with_kin(found, {}), names) == [NARROW]
    assert buckets.crowded(buckets.with_kin(found, {B: A}), names) == []


@pytest.mark.release
def test_two_rules_of_one_argument_and_a_mere_check_are_three_buckets(
    buckets: ModuleType, target_folder: Any, tmp_path: Path
) -> None:
    programs = {
        PAGE_TABLE: decoded_by_fa3(page=1, requests=2),
        f"{PAGE_TABLE}:id": decoded_by_fa3(page=16, requests=1),
        "contract/AssertionError/_few.plan_decode": decoded_by_fa3(page=1, requests=4),
    }
    entries = [
        {"signature": name, "program": program.text, "count": 1, "examined": True, "reliability": [10, 10]}
        for name, program in programs.items()
    ]
    found = buckets.examine(entries, target_folder("0.5.23"), [NARROW, LOCATED, FEW], tmp_path)
    assert [(one.signature, one.owners, one.shown) for one in found] == [
        (PAGE_TABLE, (NARROW,), (PAGE_TABLE,)),
        (f"{PAGE_TABLE}:id", (LOCATED,), (f"{PAGE_TABLE}:id",)),
        ("contract/AssertionError/_few.plan_decode", (FEW,), ("contract/AssertionError/_few.plan_decode",)),
    ]
    assert all(one.is_own for one in found)


def decoded_by_fa3(page: int, requests: int) -> Program:
    world = World(prefill="torch_native", decode="fa3", page_size=page)
    return Program(world, (Extend(tuple(Row(number, 2) for number in range(requests))), Decode(tuple(range(requests)))))
