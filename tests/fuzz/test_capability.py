"""What is tried to learn what a target can do, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuzz.capability import Trial
from stubs.world import World


@dataclass(slots=True)
class Target:
    """Starts no twin of ``alone``, no world of ``apart``, none with more draft steps than ``steps``; notes what is run."""

    alone: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()  # halves that verify nothing
    steps: int = 2
    started: list[str] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)

    def reason(self, world: World) -> str:
        self.started.append(world.pair)
        if world.prefill == world.decode and world.prefill in self.alone:
            return f"no {world.prefill} here"
        return "not these two" if world.pair in self.apart else ""

    def starts(self, world: World) -> bool:
        return not self.reason(world) and world.spec_steps <= self.steps

    def verifies(self, world: World) -> bool:
        self.verified.append(f"{world.pair} {world.spec_mode}")
        return (world.prefill if world.spec_mode == "prefill" else world.decode) not in self.mute

    def trial(self) -> Trial:
        return Trial("cpu", self.reason, self.starts, self.verifies)


def tried(names: list[str]) -> tuple[list[World], dict[str, str]]:
    """The worlds that are started to learn which pairs of these do, where all do; and what is said of the pairs."""
    worlds: list[World] = []

    def reason(world: World) -> str:
        worlds.append(world)
        return ""

    return worlds, Trial("cpu", reason, lambda world: True, lambda world: True).pairs(names)


def test_every_pair_that_starts_has_no_reason() -> None:
    assert Target().trial().pairs(["a", "b"]) == {"a:a": "", "a:b": "", "b:a": "", "b:b": ""}


def test_a_name_that_does_not_start_alone_is_not_tried_beside_others() -> None:
    target = Target(alone=("b",))
    assert target.trial().pairs(["a", "b"]) == {"a:a": "", "a:b": "no b here", "b:a": "no b here", "b:b": "no b here"}
    assert target.started == ["a:a", "b:b"]


def test_two_that_start_alone_may_not_start_together() -> None:
    assert Target(apart=("a:b",)).trial().pairs(["a", "b"])["a:b"] == "not these two"


def test_worlds_have_pages_that_both_halves_take() -> None:
    worlds, _ = tried(["triton", "trtllm_mha"])
    assert [(world.pair, world.page_size) for world in worlds] == [
        ("triton:triton", 1),
        ("trtllm_mha:trtllm_mha", 16),
        ("triton:trtllm_mha", 16),
        ("trtllm_mha:triton", 16),
    ]


def test_a_mode_is_told_by_the_half_that_serves_it() -> None:
    assert Target(mute=("b",)).trial().modes("a:b") == {"prefill": 4}
    assert Target(mute=("b",)).trial().modes("b:a") == {"decode": 4}


def test_a_half_is_verified_once_for_all_its_pairs() -> None:
    target = Target()
    trial = target.trial()
    assert [trial.modes(pair) for pair in ("a:b", "a:c")] == [{"prefill": 4, "decode": 4}] * 2
    assert target.verified == ["a:a prefill", "b:b decode", "c:c decode"]


def test_where_two_steps_do_not_start_one_is_the_most() -> None:
    assert Target(steps=1).trial().modes("a:b") == {"prefill": 1, "decode": 1}


def test_a_pair_that_starts_with_no_drafts_has_no_modes() -> None:
    assert Target(apart=("a:b",)).trial().modes("a:b") == {}


def test_a_half_of_which_no_twin_starts_is_verified_in_the_pair_itself() -> None:
    target = Target(alone=("a",))
    assert target.trial().modes("a:b") == {"prefill": 4, "decode": 4}
    assert target.verified == ["a:b prefill", "b:b decode"]


def test_a_backend_that_decodes_alone_is_tried_beside_one_that_serves_prompts() -> None:
    target = Target(alone=("cutedsl_mla",))
    found = target.trial().pairs(["triton", "cutedsl_mla"])
    assert target.started[1] == "trtllm_mla:cutedsl_mla"
    assert found == {
        "triton:triton": "",
        "triton:cutedsl_mla": "",
        "cutedsl_mla:triton": "",
        "cutedsl_mla:cutedsl_mla": "no cutedsl_mla here",
    }


def test_a_backend_for_latent_attention_alone_is_tried_with_it() -> None:
    worlds, _ = tried(["triton", "flashmla"])
    assert [(world.pair, world.kv_lora_rank) for world in worlds] == [
        ("triton:triton", 0),
        ("flashmla:flashmla", 256),
        ("triton:flashmla", 256),
        ("flashmla:triton", 256),
    ]


def test_halves_that_no_page_size_serves_are_not_tried_together() -> None:
    worlds, found = tried(["triton", "flashmla", "cutlass_mla"])
    why = "no page size serves both: flashmla takes 64; cutlass_mla takes 128"
    assert (found["flashmla:cutlass_mla"], found["triton:cutlass_mla"]) == (why, "")
    assert "flashmla:cutlass_mla" not in [world.pair for world in worlds]
