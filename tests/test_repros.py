"""Every saved reproducer shows its fault on the release it was found on; `tox -e repros` runs them on every release."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.expected import FILE, read_expected
from fuzz.repro import read_repro
from fuzz.revisions import Rig, replay_all

FOLDER = Path(__file__).parents[1] / "repros"
REPROS = sorted(FOLDER.glob("*.py"))
EXPECTED = read_expected(FOLDER / FILE)


@pytest.fixture(scope="module")
def exit_codes(target_folder: object) -> dict[Path, int]:
    """One replay of each on its own release; one worker a release."""
    return {result.path: result.exit_code for result in replay_all(REPROS, None, 1, Rig())}


@pytest.mark.parametrize("path", REPROS, ids=lambda path: path.stem)
@pytest.mark.release
def test_shows_on_the_release_it_was_found_on(path: Path, exit_codes: dict[Path, int]) -> None:
    assert exit_codes[path] == 1


@pytest.mark.parametrize("path", REPROS, ids=lambda path: path.stem)
def test_is_named_after_its_signature_and_indexed(path: Path) -> None:
    signature = read_repro(path).signature
    assert signature is not None
    assert path.stem == signature.slug or path.stem.startswith(f"{signature.slug}-")  # another fault of that signature
    assert path.name in (path.parent / "README.md").read_text()


@pytest.mark.parametrize("path", REPROS, ids=lambda path: path.stem)
def test_is_expected_to_show_where_it_was_found(path: Path) -> None:
    found_on = read_repro(path).found_on or ""
    expected = EXPECTED.get(path.stem, found_on.removeprefix("pypi:"))
    assert expected is not None, "run compare --write-expected"
    assert expected.state == "bug"


def test_nothing_is_expected_of_scripts_that_are_gone() -> None:
    assert set(EXPECTED.by_script) == {path.stem for path in REPROS}


def test_there_are_some() -> None:
    assert REPROS
