"""What each wrapper answers for each name read off it, and what the backends below it would have said."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from fuzz.audit.classes import Classes, Member
from fuzz.audit.nesting import Nesting
from fuzz.audit.reads import CALL, PLAIN, STORE, Read, Receiver
from fuzz.audit.rows import BASE, MISSING, OWN, SHADOWED
from fuzz.audit.source import walk

MODEL_NAME_MIN = 4  # letters; shorter beginnings, such as "tbo", name techniques
TEMPLATES_MAX = 8  # base templates that call base templates that call hooks; three deep in the releases seen


class Answers:
    def __init__(self, classes: Classes, nesting: Nesting, reads: tuple[Read, ...]) -> None:
        self.classes, self.nesting = classes, nesting
        self.forwards: dict[str, list[Read]] = defaultdict(list)
        self._on: dict[tuple[str, str], list[Read]] = defaultdict(list)
        self._stamped: set[tuple[str, str]] = set()
        self._children: dict[tuple[str, str], dict[str, Member]] = {}
        self._below = {wrapper: self._everything_below(wrapper) for wrapper in classes.wrappers}
        for read in reads:
            if read.inside and read.receiver.slots:
                self.forwards[read.inside].append(read)
            for wrapper in read.receiver.wrappers:
                self._on[wrapper, read.name].append(read)
        for wrapper in classes.wrappers:
            self._add_template_hooks(wrapper)
        self._find_stamps()
        self.kinds = nesting.kinds()
        self._methods_called: dict[str, set[str]] = defaultdict(set)
        for read in reads:
            if read.access == CALL and not read.inside and not read.flags:
                self._methods_called[read.file].add(read.name)

    def names(self, wrapper: str) -> list[str]:
        return sorted(n for w, n in self._on if w == wrapper and not n.startswith("__"))

    def reads(self, wrapper: str, name: str) -> list[Read]:
        return self._on.get((wrapper, name), [])

    def _add_template_hooks(self, wrapper: str) -> None:
        """An inherited base method that callers call reads its hooks off the wrapper."""
        done: set[str] = set()
        for _ in range(TEMPLATES_MAX):
            fresh = [n for n in self.names(wrapper) if n not in done]
            if not fresh:
                return
            for name in fresh:
                done.add(name)
                member = self.classes.lookup(wrapper, name)
                if member is None or member.owner != self.classes[self.classes.base].name:
                    continue
                if member.function is not None and self._called(wrapper, name):
                    for hook in self._hooks(wrapper, member):
                        self._on[wrapper, hook.name].append(hook)

    def _called(self, wrapper: str, name: str) -> bool:
        return any(r.access in (CALL, PLAIN) for r in self.reads(wrapper, name))

    def _hooks(self, wrapper: str, template: Member) -> list[Read]:
        base = self.classes[self.classes.base]
        called = {id(n.func) for n in walk(template.node) if isinstance(n, ast.Call)}
        return [
            Read(
                node.attr,
                CALL if id(node) in called else PLAIN,
                Receiver(frozenset({wrapper})),
                base.module.path,
                f"{base.name}.{template.name}",
            )
            for node in walk(template.node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        ]

    def _find_stamps(self) -> None:
        """Names that whoever builds the wrapper writes on it, and no leaf sets by itself: answered by the stamp."""
        for (wrapper, name), reads in self._on.items():
            written = any(r.access == STORE for r in reads)
            if written and not any(self.own(leaf, name) for leaf in self.classes.leaves):
                self._stamped.add((wrapper, name))

    def own(self, key: str, name: str) -> Member | None:
        """The class's member, unless it is what the base class would have answered anyway."""
        member = self.classes.lookup(key, name)
        if member is None or member.owner == self.classes[self.classes.base].name:
            return None
        default = self.default(name)
        return None if default is not None and default.body == member.body else member

    def default(self, name: str) -> Member | None:
        return self.classes.lookup(self.classes.base, name)

    def answer(self, wrapper: str, name: str) -> str:
        if (wrapper, name) in self._stamped:
            return OWN
        member = self.classes.lookup(wrapper, name)
        if member is None:
            return OWN if self.classes.lookup(wrapper, "__getattr__") else MISSING
        if member.owner != self.classes[self.classes.base].name:
            return OWN
        return SHADOWED if self.children(wrapper, name) else BASE

    def children(self, wrapper: str, name: str) -> dict[str, Member]:
        """The backends below the wrapper, direct children that are wrappers among them, with an answer of their own."""
        if (wrapper, name) not in self._children:
            found = {key: self.own(key, name) for key in self._below[wrapper]}
            self._children[wrapper, name] = {key: member for key, member in found.items() if member is not None}
        return self._children[wrapper, name]

    def _everything_below(self, wrapper: str) -> tuple[str, ...]:
        below: set[str] = set()
        for parameter in self.classes.slots(wrapper).values():
            below |= self.nesting.leaves(wrapper, parameter) | self.nesting.children(wrapper, parameter)
        return tuple(sorted(below))  # in one order, so that equal counts fall alike each time

    def admits(self, file: str, key: str) -> bool:
        """Whether a backend has each method that a file calls without a guard: only such backends ever get there."""
        return all(self.classes.lookup(key, name) is not None for name in self._methods_called.get(file, ()))

    def named(self, read: Read, children: list[str]) -> list[str]:
        """The children of the kinds that the reader's file or function is named after; all, if it is after none."""
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", f"{read.file} {read.qualname}")
        text = f"_{re.sub('[^a-z0-9]+', '_', spaced.lower())}_"
        meant = [k for k in children if any(f"_{kind}_" in text for kind in self.kinds.get(k, ()))]
        return meant or children

    def single_model(self, wrapper: str) -> bool:
        """Whether the wrapper is named after a model, or one child can only be one class outside the registry."""
        words = re.findall(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])", self.classes[wrapper].name)
        starts = ("".join(words[:n]).lower() for n in range(1, len(words)))
        stems = self.nesting.source.model_stems
        if any(len(start) >= MODEL_NAME_MIN and stem.startswith(start) for start in starts for stem in stems):
            return True
        handed = [self.nesting.children(wrapper, p) for p in set(self.classes.slots(wrapper).values())]
        return any(len(below) == 1 and not (below & self.kinds.keys()) for below in handed)

    def inherited(self, wrapper: str, name: str) -> bool:
        """Whether a wrapper's parent wrapper gives the same answer, so that the parent's row says it all."""
        parents = [k for k in self.classes.order(wrapper)[1:] if k in self.classes.wrappers]
        mine = self.classes.lookup(wrapper, name)
        return any(self.classes.lookup(p, name) is mine for p in parents)

    def forwarded(self, wrapper: str, name: str) -> frozenset[str]:
        """The constructor parameters of the children that the wrapper asks in order to answer the name itself."""
        asked: set[str] = set()
        for ancestor in self.classes.order(wrapper):
            for read in self.forwards.get(ancestor, []):
                own_method = read.qualname.rpartition(".")[2]
                if read.name == name and own_method in (name, "__init__"):
                    asked |= {parameter for _, parameter in read.receiver.slots}
        return frozenset(asked)

    def selects(self, wrapper: str, name: str) -> bool:
        """Whether the wrapper hands the name to whichever child serves the mode, by one call on a chosen child."""
        asked = [r for k in self.classes.order(wrapper) for r in self.forwards.get(k, []) if r.name == name]
        return any(len(r.receiver.slots) > 1 for r in asked)
