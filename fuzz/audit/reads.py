"""What SGLang's code reads off an attention backend, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzz.audit.signatures import CallShape

PLAIN, CALL, GUARDED, STORE = "plain", "call", "guarded", "store"


@dataclass(frozen=True, slots=True)
class Receiver:
    """What an expression that holds an attention backend may be: which wrappers, which children of which wrapper.

    `slots` holds (wrapper, constructor parameter); `many` says that the expression is a collection of backends.
    A receiver with neither wrappers nor slots is a leaf backend for certain, of no interest here.
    """

    wrappers: frozenset[str] = frozenset()
    slots: frozenset[tuple[str, str]] = frozenset()
    many: bool = False

    def __or__(self, other: Receiver) -> Receiver:
        return Receiver(self.wrappers | other.wrappers, self.slots | other.slots, self.many or other.many)

    def only(self, classes: frozenset[str]) -> Receiver:
        return replace(self, wrappers=self.wrappers & classes, slots=frozenset())

    def without(self, classes: frozenset[str]) -> Receiver:
        return replace(self, wrappers=self.wrappers - classes)

    @property
    def one(self) -> Receiver:
        return replace(self, many=False)


@dataclass(frozen=True, slots=True)
class Read:
    """One read of `name` in `reader` (file:qualname); `flags` are the backend's flags that must be true to get there.

    `inside` is the wrapper whose own method does the reading, if one does.
    """

    name: str
    access: str
    receiver: Receiver
    file: str
    qualname: str
    flags: frozenset[str] = frozenset()
    shape: CallShape | None = None
    inside: str | None = None

    @property
    def reader(self) -> str:
        return f"{self.file}:{self.qualname}"
