"""The corpus folder: named by content, whole or not at all, tolerant of what is broken, merged and pruned."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.corpus import Corpus, Entry, entry_of, merge, prune, smallest
from fuzz.launch import ROOT
from fuzz.program import Decode, Extend, Program, Row
from stubs.world import World


def entry(tokens: int, *features: int, version: str = "9.1") -> Entry:
    return Entry(Program(World(), (Extend((Row(0, tokens),)), Decode((0,)))), frozenset(features), version)


def corpus(folder: Path, *entries: Entry) -> Corpus:
    made = Corpus(folder, pytest.fail)
    for one in entries:
        made.add(one)
    return made


def read(folder: Path) -> tuple[list[Entry], list[str]]:
    told: list[str] = []
    return Corpus(folder, told.append).fresh(), told


def test_file_is_named_by_its_content_and_is_a_program_below_a_line_on_it(tmp_path: Path) -> None:
    corpus(tmp_path, entry(3, 7, 5))
    (path,) = tmp_path.iterdir()
    assert path.name == hashlib.sha256(path.read_bytes()).hexdigest()[:32] + ".program"
    first, rest = path.read_text().split("\n", 1)
    assert json.loads(first) == {"seamripper_corpus": 1, "sglang_version": "9.1", "features": [5, 7]}
    assert rest == entry(3).program.text


def test_what_is_written_is_read(tmp_path: Path) -> None:
    corpus(tmp_path, entry(3, 1), entry(4, 2))
    entries, told = read(tmp_path)
    assert (sorted(entries, key=lambda one: min(one.features)), told) == ([entry(3, 1), entry(4, 2)], [])


def test_same_entry_is_written_once(tmp_path: Path) -> None:
    made = corpus(tmp_path)
    assert [made.add(entry(3, 1)), made.add(entry(3, 1))] == [True, False]


def test_fresh_are_those_that_others_wrote_since(tmp_path: Path) -> None:
    made = corpus(tmp_path, entry(3, 1))
    assert made.fresh() == []
    corpus(tmp_path, entry(4, 2))
    assert [made.fresh(), made.fresh()] == [[entry(4, 2)], []]


@pytest.mark.parametrize("spoil", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: data[:-1]])
def test_cut_file_is_set_aside_with_a_line(tmp_path: Path, spoil) -> None:  # type: ignore[no-untyped-def]
    corpus(tmp_path, entry(3, 1), entry(4, 2))
    path = tmp_path / entry(3, 1).name
    path.write_bytes(spoil(path.read_bytes()))
    entries, told = read(tmp_path)
    assert (entries, told) == (
        [entry(4, 2)],
        [f"{path}: does not hold what its name says; set aside as {path.name}.broken"],
    )
    assert read(tmp_path) == ([entry(4, 2)], [])
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".broken", ".program"]


def test_every_bit_flip_is_noticed(tmp_path: Path) -> None:
    one = entry(3, 1)
    data = one.text.encode()
    for place in range(len(data)):
        flipped = bytes([*data[:place], data[place] ^ 1 << place % 8, *data[place + 1 :]])
        with pytest.raises(ValueError, match="does not hold what its name says"):
            entry_of(flipped, one.name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]\n", 'expected a first line with "seamripper_corpus": 1'),
        ('{"seamripper_corpus":2}\n', 'expected a first line with "seamripper_corpus": 1'),
        ('{"seamripper_corpus":1,"sglang_version":"9.1","features":[-1]}\n', "whole numbers of 32 bits"),
        ('{"seamripper_corpus":1,"sglang_version":"9.1","features":[]}\n', "program text is empty"),
        (entry(3).text.replace('"tokens":3', '"tokens":0'), "extends by 0 tokens"),
        (entry(3).text.replace('"page_size":1', '"page_size":3'), "no multiple of page 3"),
        ("not JSON\n", "Expecting value"),
    ],
)
def test_file_that_is_no_entry_is_set_aside_and_says_why(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / (hashlib.sha256(text.encode()).hexdigest()[:32] + ".program")
    path.write_text(text)
    entries, (line,) = read(tmp_path)
    assert entries == []
    assert why in line


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("mine")
    (tmp_path / ".half.program").write_text("somebody is writing this")
    assert read(tmp_path) == ([], [])
    assert len(list(tmp_path.iterdir())) == 2


def test_merge_takes_each_entry_once(tmp_path: Path) -> None:
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    corpus(a, entry(3, 1), entry(4, 2))
    corpus(b, entry(4, 2), entry(5, 3))
    assert merge([a, b], c, pytest.fail) == 3
    assert merge([a, b], c, pytest.fail) == 0
    assert {path.name for path in c.iterdir()} == {path.name for path in (*a.iterdir(), *b.iterdir())}


def test_smallest_set_shows_the_same_and_none_of_it_can_go() -> None:
    # The greedy choice, 1 to 4, is made needless by the two that are taken for 5 and 6.
    entries = [entry(9, 1, 2, 3, 4), entry(3, 1, 2, 5), entry(4, 3, 4, 6), entry(5, 1)]
    assert smallest(entries) == [entry(3, 1, 2, 5), entry(4, 3, 4, 6)]


def test_of_equals_the_simplest_stays() -> None:
    assert smallest([entry(9, 1), entry(3, 1), entry(5, 1)]) == [entry(3, 1)]


def test_what_another_release_showed_is_something_else() -> None:
    entries = [entry(3, 1), entry(5, 1, version="9.2")]
    assert smallest(entries) == entries


def test_prune_leaves_the_smallest_set(tmp_path: Path) -> None:
    corpus(tmp_path, entry(3, 1), entry(4, 1, 2), entry(5, 2))
    assert prune(tmp_path, pytest.fail) == (1, 2)
    assert read(tmp_path) == ([entry(4, 1, 2)], [])


def test_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    corpus(Path(a), entry(3, 1))
    corpus(Path(b), entry(4, 1, 2))
    assert main(["corpus", "merge", a, b, "--into", c]) == 0
    assert main(["corpus", "prune", c]) == 0
    assert main(["corpus", "prune", c, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"2 new in {c}\n1 kept, 1 removed from {c}\n")
    assert json.loads(out.split("\n", 2)[2]) == {"folder": c, "kept": 1, "removed": 0}


SHARER = """
import sys
from pathlib import Path
from fuzz.corpus import Corpus, Entry
from fuzz.program import Extend, Program, Row
from stubs.world import World
told = []
corpus, number = Corpus(Path(sys.argv[1]), told.append), int(sys.argv[2])
known = {}
for turn in range(20):
    for owner in (number, 99):  # one of its own, and one that all of them write
        ops = (Extend((Row(0, 1 + turn),)),)
        entry = Entry(Program(World(), ops, seed=owner), frozenset(range(owner, owner + 500)), "9.1")
        corpus.add(entry)
        known[entry.name] = entry
    known |= {entry.name: entry for entry in corpus.fresh()}
import time; time.sleep(1)
known |= {entry.name: entry for entry in corpus.fresh()}
print(len(told), all(len(entry.features) == 500 for entry in known.values()))
"""


def test_eight_processes_on_one_corpus_read_nothing_torn(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHARER, str(tmp_path)]
    sharers = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE, text=True) for number in range(8)
    ]
    assert [sharer.communicate(timeout=120)[0] for sharer in sharers] == ["0 True\n"] * 8
    entries, told = read(tmp_path)
    assert (len(entries), told) == (9 * 20, [])
    assert {path.suffix for path in tmp_path.iterdir()} == {".program"}
