"""A campaign over a Ray cluster: its seeds dealt out to shards, each a campaign of one worker in a folder of its own.

Where a shard runs, and where it runs again when its node dies, is for Ray to say: the shard goes on in its folder, as
the same command does anywhere. The folders, put together, are the campaign's. All nodes see the folder that the command
is run in, --out, --repros, --known and --since.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from fuzz.campaign import run_campaign
from fuzz.known import known_of
from fuzz.memory import limit_mb
from fuzz.merge import merge
from fuzz.order import ATHERIS, CampaignError, CampaignOptions, CampaignResult, Progress
from fuzz.process import Ready
from fuzz.record import Record
from fuzz.sealed import SealError, sealed, unsealed
from fuzz.since import read_sequels
from fuzz.store import Store, StoreError, StoreInUseError, make_folder, records_paths, write_whole
from fuzz.tally import IDLE
from fuzz.targets import TargetError, open_target
from fuzz.watch import Watch

SHARDS, CLUSTER = "shards", "cluster.json"
RETRIES_MAX = 10  # of a shard whose node or process died; a program over which that happens thrice is given up before
LOCK_SECONDS = 120  # a shard that is dealt anew waits for the one before it, which notices that its node has died
LOOK_SECONDS = 1.0
ENDING_SECONDS = 120  # for shards that were asked to end; what they have on disk is not lost if they do not


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """How a shard ended. ``reason`` says in a line why it could not run or ended early."""

    reason: str = ""
    has_run: bool = True
    interrupted: bool = False


def run_on_cluster(options: CampaignOptions, address: str, shards: int | None, progress: Progress) -> CampaignResult:
    """Run it on the cluster at ``address``; "": the one that Ray finds by itself, else one on this machine.

    ``shards`` are as many as there are CPUs where None, and as many as before in a folder where there were some. Raises
    CampaignError, TargetError and StoreError as ``run_campaign``.
    """
    options.check()
    known = known_of(options)
    progress.phase(f"getting {options.target}")
    with open_target(options.target), closing(Store(options.out)):
        ray = _connected(address)
        try:
            parts = _parts(options, shards or _cpus(ray))
            for part in parts:
                make_folder(part.out)
            ends = _run_shards(ray, options, parts, progress)
        finally:
            ray.shutdown()
        progress.phase("putting the shards together")
        tally, stand = merge(options, [part.out for part in parts], known, progress.note)
    reason = next((end.reason for end in ends if end.reason and not end.has_run), "")
    result = tally.result(
        options,
        stand,
        list(read_sequels(options.out, progress.note).values()),
        reason=reason,
        has_given_up=bool(reason),
        interrupted=any(end.interrupted for end in ends),
    )
    progress.finished(result)
    return result


def _connected(address: str) -> Any:
    """Ray, connected. Raises CampaignError."""
    try:
        import ray
    except ModuleNotFoundError:
        raise CampaignError("--ray needs Ray; pip install 'seamripper[ray]', here and on each node") from None
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise CampaignError(
            f"no Ray cluster answers at {address!r} ({why}); start one with `ray start --head`, or give no address"
        ) from None
    return ray


def _cpus(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _parts(options: CampaignOptions, shards: int) -> list[CampaignOptions]:
    """The shards' options. A folder that was dealt out to so many before is dealt out to as many again."""
    path = options.out / CLUSTER
    try:
        shards = int(unsealed(path.read_text(encoding="utf-8"))[SHARDS])
    except FileNotFoundError:
        if records_paths(options.out):
            raise CampaignError(
                f"{options.out} holds a campaign that ran without --ray; give this one another --out"
            ) from None
    except (OSError, SealError, KeyError, ValueError) as error:
        raise CampaignError(
            f"{path} is spoiled ({error}); expected how many folders {options.out / SHARDS} has, "
            f"such as {sealed({SHARDS: shards})}: write that line, or give another --out"
        ) from None
    write_whole(path, sealed({SHARDS: shards}) + "\n", durable=True)
    corpus = options.corpus_folder if options.engine == ATHERIS else None  # one for all: its files are named by content
    one = replace(options, workers=1, shards=shards, corpus=corpus)
    return [replace(one, shard=number, out=options.out / SHARDS / f"{number:03d}") for number in range(shards)]


def _run_shards(ray: Any, options: CampaignOptions, parts: list[CampaignOptions], progress: Progress) -> list[ShardEnd]:
    """Hand all of them to Ray and tell how they get on; Ctrl-C ends them early."""
    progress.phase(f"dealing out seeds to {len(parts)} shard(s)")
    task = ray.remote(
        num_cpus=1, num_gpus=int(options.device == "cuda"), max_retries=RETRIES_MAX, scheduling_strategy="SPREAD"
    )(run_shard)
    watch = Watch(options, [part.out for part in parts], progress)
    tasks = [task.remote(part, os.getcwd()) for part in parts]
    interrupted = False
    pending = list(tasks)
    while pending:
        try:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=LOOK_SECONDS)
            watch.look()
        except KeyboardInterrupt:
            interrupted = True
            for one in pending:
                ray.cancel(one)
            ray.wait(pending, num_returns=len(pending), timeout=ENDING_SECONDS)
            break
    return [_end(ray, one, interrupted) for one in tasks]


def _end(ray: Any, task: Any, interrupted: bool) -> ShardEnd:
    """What became of a shard, whatever became of it."""
    try:
        end: ShardEnd = ray.get(task, timeout=0)
        return end
    except (ray.exceptions.TaskCancelledError, ray.exceptions.GetTimeoutError):
        return ShardEnd(interrupted=True)
    except ray.exceptions.RayError as error:
        if interrupted:
            return ShardEnd(interrupted=True)
        return ShardEnd(f"a shard was lost: {' '.join(str(error).split())[:300]}", has_run=False)


def run_shard(options: CampaignOptions, folder: str) -> ShardEnd:
    """One shard, on whichever node: a campaign, its paths those of ``folder``. What went wrong is its answer."""
    os.chdir(folder)
    memory_mb = options.memory_mb or limit_mb(options.device, os.cpu_count() or 1)
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            result = run_campaign(replace(options, memory_mb=memory_mb), _Silent())
        except StoreInUseError as error:
            if time.monotonic() >= until:
                return ShardEnd(str(error), has_run=False)
            time.sleep(1)
        except (CampaignError, TargetError, StoreError) as error:
            return ShardEnd(str(error), has_run=False)
        else:
            reason = "" if result.reason == IDLE else result.reason  # another shard may have done so
            return ShardEnd(reason, not reason, result.interrupted)


class _Silent:
    """A Progress that tells nobody: whoever dealt the shard reads its folder."""

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None: ...
    def program_done(self, record: Record) -> None: ...
    def finding(self, finding: dict[str, Any]) -> None: ...
    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self, result: CampaignResult) -> None: ...
