"""A campaign over Ray: two nodes on this machine find what one machine finds, and one that dies costs nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignError, CampaignOptions, run_campaign
from fuzz.cluster import run_on_cluster
from fuzz.record import Record
from fuzz.sealed import sealed
from tests.fuzz.campaign_log import FAULTS, FAULTY, Log, findings, records
from tests.fuzz.conftest import MakeTarget

PROGRAMS = 120
OBJECT_STORE_BYTES = 80 << 20  # the smallest that Ray takes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES}
    made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    made.add_node(**node)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def ran(out: Path) -> list[tuple[int, str, str]]:
    return sorted((record.seed, record.program, record.verdict) for record in records(out))


def counts(out: Path) -> dict[str, int]:
    return {entry["signature"]: entry["count"] for entry in findings(out)}


def shard_records(out: Path) -> list[int]:
    """How many programs each shard has run."""
    return [len(path.read_text().splitlines()) for path in sorted(out.glob("shards/*/records-0.jsonl"))]


@pytest.fixture
def plain(options: Any, tmp_path: Path) -> CampaignOptions:
    """A campaign that has run on this machine. Its target notes each worker that imports it, and takes its time if told."""
    imported = f"open({str(tmp_path / 'imports')!r}, 'a').write('.')\n"
    in_time = f"time.sleep(0.05 if os.path.exists({str(tmp_path / 'slow')!r}) else 0.001)"
    source = "import os\n" + imported + FAULTY.replace("time.sleep(0.001)", in_time)
    whole: CampaignOptions = options(source, programs=PROGRAMS)
    plain = replace(whole, out=tmp_path / "plain", repros=tmp_path / "plain-repros")
    run_campaign(plain, Log())
    (tmp_path / "imports").unlink()
    return plain


def test_ctrl_c_ends_it_early_and_it_goes_on(cluster: Any, options: Any) -> None:
    def interrupt(record: Record) -> None:
        raise KeyboardInterrupt

    slow = FAULTY.replace("time.sleep(0.001)", "time.sleep(0.05)")
    chosen: CampaignOptions = options(slow, programs=30)
    log = Log()
    log.on_record = interrupt
    result = run_on_cluster(chosen, cluster.address, 2, log)
    assert (result.interrupted, 0 < result.programs < 30, result.reason) == (True, True, "")
    assert len(records(chosen.out)) == result.programs
    result = run_on_cluster(replace(chosen, programs=result.programs + 2), cluster.address, 2, Log())
    assert (result.interrupted, [record.seed for record in sorted(records(chosen.out), key=lambda one: one.seed)]) == (
        False,
        list(range(result.programs)),
    )


def test_two_nodes_find_what_one_machine_finds_and_a_dead_one_costs_nothing(
    cluster: Any, plain: CampaignOptions, tmp_path: Path
) -> None:
    chosen = replace(plain, out=tmp_path / "out", repros=tmp_path / "repros")
    log = Log()
    result = run_on_cluster(chosen, cluster.address, None, log)
    assert (ran(chosen.out), counts(chosen.out)) == (ran(plain.out), counts(plain.out))
    assert len(counts(chosen.out)) >= 3  # of the five there are
    assert (result.exit_code, result.programs, result.reason) == (1, PROGRAMS, "")
    assert sorted(path.name for path in result.scripts) == sorted(path.name for path in plain.repros.iterdir())
    assert shard_records(chosen.out) == [PROGRAMS // 2, PROGRAMS // 2]
    assert sorted(record.seed for record in log.records) == list(range(PROGRAMS))
    assert {entry["signature"] for entry in log.findings} == set(counts(chosen.out)) <= FAULTS
    assert (tmp_path / "imports").read_text() == ".."

    log = Log()
    assert run_on_cluster(chosen, cluster.address, None, log) == result
    assert (log.records, log.findings) == ([], [])

    killed = replace(chosen, out=tmp_path / "killed", repros=tmp_path / "killed-repros")
    (tmp_path / "imports").unlink()
    (tmp_path / "slow").touch()
    died_at: list[list[int]] = []

    def kill_half_way() -> None:
        while not died_at:
            at = shard_records(killed.out)
            if len(at) == 2 and min(at) >= 3:
                died_at.append(at)
            time.sleep(0.02)
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        (tmp_path / "slow").unlink()

    killer = threading.Thread(target=kill_half_way)
    killer.start()
    result = run_on_cluster(killed, cluster.address, None, Log())
    killer.join()
    assert max(died_at[0]) < PROGRAMS // 2
    assert (tmp_path / "imports").read_text() == "..."  # one shard was begun a second time
    assert (ran(killed.out), counts(killed.out)) == (ran(plain.out), counts(plain.out))
    assert (result.exit_code, result.programs, result.reason) == (1, PROGRAMS, "")
    assert all(entry["examined"] and entry["reliability"] == [10, 10] for entry in findings(killed.out))


def test_without_ray_it_says_what_to_install(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CampaignError, match=r"--ray needs Ray; pip install 'seamripper\[ray\]', here and on each node"):
        run_on_cluster(options(), "", None, Log())


def test_no_folder_is_shared_with_a_campaign_of_one_machine(cluster: Any, options: Any) -> None:
    chosen: CampaignOptions = options(programs=2)
    run_campaign(chosen, Log())
    with pytest.raises(CampaignError, match="holds a campaign that ran without --ray; give this one another --out"):
        run_on_cluster(chosen, cluster.address, None, Log())


def test_a_target_that_cannot_be_imported_is_told(cluster: Any, options: Any, make_target: MakeTarget) -> None:
    broken = make_target("raise ImportError('no such kernel')\n", name="broken")
    result = run_on_cluster(replace(options(), target=f"path:{broken}"), cluster.address, 1, Log())
    assert (result.exit_code, result.programs) == (3, 0)
    assert "no such kernel" in result.reason


def test_a_spoiled_count_of_shards_is_told(cluster: Any, options: Any) -> None:
    chosen: CampaignOptions = options(programs=2)
    chosen.out.mkdir()
    (chosen.out / "cluster.json").write_text(sealed({"shards": 2}).replace("2", "3"))
    with pytest.raises(CampaignError, match="cluster.json is spoiled"):
        run_on_cluster(chosen, cluster.address, None, Log())
