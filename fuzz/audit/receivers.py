"""Follows attention backends through SGLang's code and collects each read off one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from fuzz.audit.classes import BASE_NAME, Classes
from fuzz.audit.nesting import Nesting
from fuzz.audit.reads import Read, Receiver
from fuzz.audit.source import Function, Module, Source
from fuzz.audit.values import BACKEND_ATTRIBUTES
from fuzz.audit.walker import FunctionWalker

ROUNDS_MAX = 6  # a backend handed from helper to helper to helper; the releases seen settle within three


class Readers:
    """Walks each function that can hold a backend until no call hands one to a further function."""

    def __init__(self, source: Source, classes: Classes, nesting: Nesting) -> None:
        self.source, self.classes, self.nesting = source, classes, nesting
        self.any_backend = Receiver(frozenset(classes.wrappers))
        self._handed: dict[tuple[str, str], Receiver] = {}
        self._kept: dict[tuple[str, str], dict[str, Receiver]] = {}
        self._flags: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
        self._returned: dict[str, Receiver | None] = {}
        self._reads: dict[str, tuple[Read, ...]] = {}
        self._todo: dict[str, Function] = {}

    def collect(self) -> tuple[Read, ...]:
        for module in self.source.scanned:
            self._keep_slots(module)
            for function in module.all_functions():
                if not self._is_dead(function):
                    self._todo[function.key] = function
        for _ in range(ROUNDS_MAX):
            todo, self._todo = self._todo, {}
            for function in todo.values():
                if not self._may_hold_backend(function):
                    continue
                self._reads[function.key] = FunctionWalker(self, function).reads()
            if not self._todo:
                break
        return tuple(read for reads in self._reads.values() for read in reads)

    def _is_dead(self, function: Function) -> bool:
        """A def that a later def of the same name in the same class body replaces."""
        if not function.class_name:
            return False
        twins = self.classes[f"{function.module.name}:{function.class_name}"].twins
        return any(first.node is function.node for first, _ in twins)

    def _may_hold_backend(self, function: Function) -> bool:
        """Spares the walk through functions whose text cannot speak of a backend."""
        if any((function.key, p.arg) in self._handed for p in function.parameters):
            return True
        first, last = function.node.lineno, function.node.end_lineno or function.node.lineno
        return any("backend" in line for line in function.module.lines[first - 1 : last]) or bool(self.kept(function))

    def _keep_slots(self, module: Module) -> None:
        for name in module.classes:
            key = f"{module.name}:{name}"
            if key in self.classes.wrappers:
                many = frozenset().union(*(self.classes[k].many for k in self.classes.order(key)))
                self._kept[module.name, name] = {
                    attr: self.slot(key, parameter, many=attr in many)
                    for attr, parameter in self.classes.slots(key).items()
                }

    def slot(self, wrapper: str, parameter: str, *, many: bool) -> Receiver:
        children = self.nesting.children(wrapper, parameter)
        wrappers = children & frozenset(self.classes.wrappers)
        return Receiver(wrappers, frozenset((wrapper, p) for p in parameter.split("|")), many)

    def kept(self, function: Function) -> dict[str, Receiver]:
        """Attributes of the function's class that hold a backend."""
        return self._kept.get((function.module.name, function.class_name or ""), {})

    def keep(self, function: Function, attribute: str, receiver: Receiver) -> None:
        """Notes `self.attribute = backend`, and walks the class again if that is news."""
        if not function.class_name or function.module.path in self.classes.leaf_files:
            return
        moving = self.classes.reassigned(function.module, function.class_name)
        if function.node.name == "__init__" and attribute in moving:
            return
        kept = self._kept.setdefault((function.module.name, function.class_name), {})
        if attribute not in kept or kept[attribute] | receiver != kept[attribute]:
            kept[attribute] = kept[attribute] | receiver if attribute in kept else receiver
            for method in function.module.methods[function.class_name]:
                self._todo[method.key] = method

    def remember_flags(self, function: Function, key: str, flags: frozenset[str]) -> None:
        """Notes `self.x = backend.flag`: a later `if self.x` in the class asks the flag."""
        if function.class_name and key.startswith("self."):
            self._flags.setdefault((function.module.name, function.class_name), {})[key] = flags

    def remembered_flags(self, function: Function, key: str) -> frozenset[str]:
        return self._flags.get((function.module.name, function.class_name or ""), {}).get(key, frozenset())

    def hand(self, function: Function, parameter: str, receiver: Receiver) -> None:
        """Notes that a call hands a backend to a parameter, and walks the function again if that is news."""
        mark = function.key, parameter
        known = self._handed.get(mark)
        if known is None or known | receiver != known:
            self._handed[mark] = known | receiver if known else receiver
            self._returned.pop(function.key, None)
            self._todo[function.key] = function

    def parameters(self, function: Function) -> dict[str, Receiver]:
        """The parameters that hold a backend: by annotation, by what callers hand over, or by name."""
        found: dict[str, Receiver] = {}
        own_file = function.module.path in self.classes.leaf_files
        for parameter in function.parameters:
            handed = self._handed.get((function.key, parameter.arg))
            if parameter.annotation is not None:
                admitted = self.classes.annotated(function.module, parameter.annotation)
                if admitted:
                    wrappers = admitted & frozenset(self.classes.wrappers)
                    if wrappers and not own_file:
                        many = any(w in ast.unparse(parameter.annotation) for w in ("equence[", "ist[", "terable["))
                        found[parameter.arg] = Receiver(wrappers, many=many)
                    continue
            if handed is not None:
                found[parameter.arg] = handed
            elif parameter.arg in BACKEND_ATTRIBUTES and not own_file:
                found[parameter.arg] = self.any_backend
        if function.node.name == "__init__" and function.class_name:
            key = f"{function.module.name}:{function.class_name}"
            if key in self.classes.wrappers:
                for parameter_name in {n for p in self.classes.slots(key).values() for n in p.split("|")}:
                    many = any(self.classes.slots(key)[a] == parameter_name for a in self.classes[key].many)
                    found[parameter_name] = self.slot(key, parameter_name, many=many)
        return found

    def returned(self, function: Function) -> Receiver | None:
        """The backend that a function returns, if it returns one."""
        if function.key not in self._returned:
            self._returned[function.key] = None  # a function that returns its own call adds nothing
            self._returned[function.key] = FunctionWalker(self, function).returned()
        return self._returned[function.key]

    def called(self, caller: Function, callee: ast.expr, *, parse: bool) -> list[Function]:
        """The functions that a call may reach, where the name tells; without `parse`, in modules parsed so far."""
        if isinstance(callee, ast.Attribute) and isinstance(callee.value, ast.Name) and callee.value.id == "self":
            return self._methods(caller, callee.attr)
        found = self.source.resolve_expression(caller.module, callee, parse=parse)
        functions = [m.functions[n] for m, n in found if n in m.functions]
        for module, name in found:
            if name in module.classes:
                functions += [f for f in module.methods[name] if f.node.name == "__init__"]
        return functions

    def _methods(self, caller: Function, name: str) -> list[Function]:
        key = f"{caller.module.name}:{caller.class_name}"
        if caller.class_name and (key in self.classes.backends or key == self.classes.base):
            return self.methods_of(frozenset({key}), name)
        return [m for m in caller.module.methods.get(caller.class_name or "", []) if m.node.name == name]

    def methods_of(self, keys: Iterable[str], name: str) -> list[Function]:
        found: list[Function] = []
        for key in keys:
            member = self.classes.lookup(key, name)
            owner = next((k for k in self.classes.order(key) if name in self.classes[k].members), None)
            if member is not None and owner is not None and self.classes[owner].name != BASE_NAME:
                methods = self.classes[owner].module.methods[self.classes[owner].name]
                found += [m for m in methods if m.node is member.node]
        return found
