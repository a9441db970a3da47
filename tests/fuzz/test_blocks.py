"""Names of instrumented blocks."""

from __future__ import annotations

from fuzz.blocks import blocks

SOURCE = """
watcher.note(40)
def outer(x):
    watcher.note(12)
    if x > 99:
        watcher.note(7)
        other.note_not(13)
    def inner():
        watcher.note(70000)
class Thing:
    def outer(self):
        watcher.note(3)
"""


def test_blocks_are_named_by_their_place() -> None:
    assert dict(blocks(compile(SOURCE, "f.py", "exec"), "a.b", "note")) == {
        40: "a.b.<module> 0",
        12: "a.b.<module>.outer 0",
        7: "a.b.<module>.outer 1",
        70000: "a.b.<module>.outer.inner 0",
        3: "a.b.<module>.Thing.outer 0",
    }
