"""The pretended GPU: its tensors stay its own, and meet none of the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.fuzz.pretend_gpu import PretendGpu


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with PretendGpu():
        yield


def test_what_is_computed_of_its_tensors_is_its_own() -> None:
    made = torch.zeros(3, device="cuda")
    moved = torch.ones(3).to("cuda")
    assert [str(tensor.device) for tensor in (made, moved, made + moved, moved[:2].clone())] == ["cuda:0"] * 4
    assert (made + moved).tolist() == [1, 1, 1]


def test_copies_go_both_ways() -> None:
    tensor = torch.zeros(3, device="cuda")
    tensor[:2] = torch.ones(2)
    assert (str(tensor.cpu().device), tensor.cpu().tolist()) == ("cpu", [1, 1, 0])


def test_index_may_lie_on_the_host() -> None:
    tensor = torch.arange(3, device="cuda")[torch.tensor([2, 0])]
    assert (str(tensor.device), tensor.tolist()) == ("cuda:0", [2, 0])


def test_tensors_of_two_devices_do_not_meet() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.zeros(3, device="cuda") + torch.ones(3)


def test_values_of_the_host_are_not_put_at_indices() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.zeros(3, device="cuda")[torch.tensor([0])] = torch.ones(1)


def test_numpy_does_not_see_into_it() -> None:
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        torch.zeros(3, device="cuda").numpy()
