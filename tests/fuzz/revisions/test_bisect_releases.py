"""Bisection over releases that lie in a folder, which is all that pip may look in."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from fuzz.published import between
from fuzz.revisions import Rig, bisect_releases, refine
from fuzz.targets import TargetError
from tests.fuzz.conftest import FAKE_EXECUTOR
from tests.fuzz.revisions.histories import SOURCES, History, write_script


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Nine wheels, and the cache that they are unpacked into.

    The bug came with 9.2 and went with 9.3, 9.3.post1 does not import, 9.10 has it again.
    """
    index = tmp_path_factory.mktemp("index")
    letters = {"9.0": "u", "9.1": "c", "9.1.post1": "C", "9.2": "b", "9.2.post1": "B", "9.3": "c"}
    for version, letter in {**letters, "9.3.post1": "i", "9.9": "c", "9.10": "b"}.items():
        info = f"sglang-{version}.dist-info"
        with zipfile.ZipFile(index / f"sglang-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("sglang/__init__.py", f"__version__ = '{version}'\n{SOURCES[letter]}")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    return index, tmp_path_factory.mktemp("cache")


@pytest.fixture
def index(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels are all that pip may look at."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folders[0]))
    monkeypatch.setenv("SEAMRIPPER_CACHE", str(folders[1]))


@pytest.fixture
def rig(tmp_path: Path, folders: tuple[Path, Path]) -> Rig:
    return Rig(sys.executable, tmp_path / "out", 20, FAKE_EXECUTOR, folders[1] / "results")


@pytest.mark.usefixtures("index")
class TestPublished:
    def test_post_releases_follow_their_release_and_numbers_are_numbers(self) -> None:
        assert between("9.1..9.10") == ["9.1", "9.1.post1", "9.2", "9.2.post1", "9.3", "9.3.post1", "9.9", "9.10"]

    def test_ends_need_not_exist(self) -> None:
        assert between("9.4..9.9.post7") == ["9.9"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("9.1", "'9.1' is no range of releases; expected FIRST..LAST, such as 0.5.13..0.5.23"),
            ("9.x..9.2", "'9.x..9.2' is no range of releases; expected FIRST..LAST, such as 0.5.13..0.5.23"),
            ("9.10..9.9", "'9.10..9.9' ends before it begins; expected the older release first"),
            ("8.0..8.9", "no release of sglang from 8.0 to 8.9 is to be had for this Python"),
        ],
    )
    def test_bad_range(self, text: str, message: str) -> None:
        with pytest.raises(TargetError) as caught:
            between(text)
        assert str(caught.value) == message


def test_no_index_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(TargetError, match=r"pip cannot list the releases of sglang: No matching distribution"):
        between("9.1..9.2")


@pytest.mark.usefixtures("index")
def test_whole_history_is_seen(rig: Rig, tmp_path: Path) -> None:
    script = write_script(tmp_path / "a.py", found_on="pypi:9.2")
    result = bisect_releases(script, "9.0..9.10", 3, rig, jobs=2)
    states = [cell.state for cell in result.cells]
    assert states == ["unsupported", "clean", "clean", "bug", "bug", "clean", "infra", "clean", "bug"]
    assert result.answers == [
        "introduced in pypi:9.2",
        "fixed in pypi:9.3",
        "back again in pypi:9.10",
        "not fixed in pypi:9.10",
    ]
    assert result.exit_code == 0


@pytest.mark.usefixtures("index")
def test_release_that_cannot_be_told_leaves_a_range(rig: Rig, tmp_path: Path) -> None:
    result = bisect_releases(write_script(tmp_path / "a.py", found_on="pypi:9.10"), "9.3.post1..9.10", 3, rig)
    assert result.answers == ["introduced in pypi:9.10", "not fixed in pypi:9.10"]
    result = bisect_releases(write_script(tmp_path / "b.py"), "9.0..9.0", 3, Rig(executor=FAKE_EXECUTOR))
    assert (result.answers, result.exit_code) == (["cannot tell: the bug shows on none of them"], 125)


@pytest.mark.usefixtures("index")
def test_bug_on_the_first_release_may_be_older(rig: Rig, tmp_path: Path) -> None:
    result = bisect_releases(write_script(tmp_path / "a.py", found_on="pypi:9.2"), "9.2..9.2.post1", 3, rig)
    assert result.answers == ["introduced in or before pypi:9.2", "not fixed in pypi:9.2.post1"]
    assert (result.exit_code, result.to_json()["introduced_in"], result.to_json()["fixed_in"]) == (0, None, None)


@pytest.mark.usefixtures("index")
def test_repro_that_does_not_hold_where_it_was_found_is_refused(rig: Rig, tmp_path: Path) -> None:
    result = bisect_releases(write_script(tmp_path / "a.py", found_on="pypi:9.3"), "9.1..9.10", 3, rig)
    (answer,) = result.answers
    assert answer.startswith("cannot tell: it does not hold on pypi:9.3, where it was found (clean 0/20: ")
    assert (len(result.cells), result.exit_code) == (1, 125)


@pytest.mark.usefixtures("index")
def test_commits_between_the_releases_follow(rig: Rig, tmp_path: Path) -> None:
    script, history = write_script(tmp_path / "a.py", found_on="pypi:9.2"), History(tmp_path / "checkout")
    history.add("cCbBic")
    for version, number in (("9.1.post1", 0), ("9.2", 3), ("9.2.post1", 3), ("9.3", 5)):
        history.git("tag", f"v{version}", str(number))
    result = bisect_releases(script, "9.1.post1..9.3", 3, rig)
    found = refine(script, history.folder, result, 3, rig)
    lines = [[str(history.number(target)) for target in one.line] for one in found]
    told = [[change.named(line) for change in one.changes] for one, line in zip(found, lines, strict=True)]
    assert told == [["2"], ["4..5"]]
    assert [one.exit_code for one in found] == [0, 125]
    assert (tmp_path / "out" / "v9.2.post1..v9.3" / "bisect.json").is_file()
