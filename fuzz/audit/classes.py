"""The attention backends of a release: their members, their order of inheritance, and which of them are wrappers."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from fuzz.audit.source import Function, Module, Source

BASE_NAME = "AttentionBackend"
VALUE_TEXT_MAX = 48  # characters of a default shown in a table cell


@dataclass(frozen=True, eq=False)
class Member:
    """One name that a class answers: a def, a property, a class value, or an attribute that a method sets."""

    name: str
    kind: str
    owner: str
    node: ast.AST

    @cached_property
    def body(self) -> str:
        """A text equal for two members that do the same."""
        if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _def_body(self.node, self.kind)
        return _value_body(self.node)

    @property
    def shown(self) -> str:
        return _shown(self.node) if self.kind in ("value", "attribute") else self.kind

    @property
    def refuses(self) -> bool:
        """Whether the whole body is `raise NotImplementedError`."""
        return self.body.startswith("refuse")

    @property
    def function(self) -> ast.FunctionDef | None:
        return self.node if self.kind == "def" and isinstance(self.node, ast.FunctionDef) else None


@dataclass(slots=True, eq=False)
class Backend:
    """One class, by the key `module:Name`."""

    key: str
    name: str
    module: Module
    node: ast.ClassDef
    members: dict[str, Member]
    twins: list[tuple[Function, Function]]
    slots: dict[str, str] = field(default_factory=dict)
    many: frozenset[str] = frozenset()

    @property
    def on_other_hardware(self) -> bool:
        return "hardware_backend" in self.module.path


class Classes:
    """Every class met, with the attention backends and wrappers among them picked out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._classes: dict[str, Backend] = {}
        self._orders: dict[str, tuple[str, ...]] = {}
        for module in source.scanned:
            for name in module.classes:
                self._add(module, name)
        bases = [c for c in self._classes.values() if c.name == BASE_NAME]
        heirs = {b.key: sum(b.key in self.order(k) for k in list(self._classes)) for b in bases}
        self.base = max(heirs, key=lambda k: heirs[k]) if heirs else ""
        self.backends = tuple(sorted(k for k in list(self._classes) if self.base in self.order(k) and k != self.base))
        for key in self.backends:
            self._find_slots(self._classes[key])
        self.wrappers = tuple(k for k in self.backends if self.slots(k))
        self.leaves = tuple(k for k in self.backends if k not in self.wrappers)
        self.leaf_files = frozenset(self._classes[k].module.path for k in self.leaves)

    def __getitem__(self, key: str) -> Backend:
        return self._classes[key]

    def _add(self, module: Module, name: str) -> str:
        key = f"{module.name}:{name}"
        if key not in self._classes:
            node = module.classes[name]
            self._classes[key] = Backend(key, name, module, node, *_members(module, node))
        return key

    def resolve(self, module: Module, node: ast.expr) -> list[str]:
        """The classes that an expression names, as seen in a module."""
        found = self.source.resolve_expression(module, node)
        return [self._add(m, n) for m, n in found if n in m.classes]

    def order(self, key: str) -> tuple[str, ...]:
        """The class and its ancestors, in the order in which Python looks a name up."""
        if key not in self._orders:
            self._orders[key] = (key,)  # stops a class that inherits from itself
            backend = self._classes[key]
            chain = [key]
            for base in backend.node.bases:
                for parent in self.resolve(backend.module, base):
                    chain += self.order(parent)
            self._orders[key] = tuple(k for i, k in enumerate(chain) if k not in chain[i + 1 :])
        return self._orders[key]

    def lookup(self, key: str, name: str) -> Member | None:
        return next((self[k].members[name] for k in self.order(key) if name in self[k].members), None)

    def heirs(self, key: str) -> frozenset[str]:
        """The backends that are this class or inherit from it."""
        return frozenset(k for k in (*self.backends, self.base) if key in self.order(k))

    def ancestor(self, key: str) -> str:
        """The topmost ancestor below the base class."""
        return [k for k in self.order(key) if k in self.backends][-1]

    def slots(self, key: str) -> dict[str, str]:
        """Attribute -> constructor parameter, for each attribute in which a wrapper keeps a child."""
        merged: dict[str, str] = {}
        for ancestor in reversed(self.order(key)):
            merged.update(self[ancestor].slots)
        return merged

    def _find_slots(self, backend: Backend) -> None:
        """A wrapper is a backend whose constructor is handed other backends and keeps them."""
        init = next((f for f in backend.module.methods[backend.name] if f.node.name == "__init__"), None)
        if init is None:
            return
        held = {p.arg for p in init.parameters[1:] if self._holds_backend(backend.module, p)}
        many: set[str] = set()
        moving = self.reassigned(backend.module, backend.name)
        for statement in init.assigns:
            if statement.value is not None:
                names = _names_held(statement.value) & held
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if not (isinstance(target, ast.Attribute) and _is_self(target.value)) or target.attr in moving:
                        continue
                    if names:
                        backend.slots[target.attr] = "|".join(sorted(names))
                        if isinstance(statement.value, (ast.List, ast.Tuple)):
                            many.add(target.attr)
        lists = {p.arg for p in init.parameters if p.annotation is not None and _is_list(p.annotation)}
        many |= {attr for attr, parameter in backend.slots.items() if parameter in lists}
        backend.many = frozenset(many)

    def reassigned(self, module: Module, class_name: str) -> frozenset[str]:
        """Attributes that methods other than the constructor set: what the constructor puts there is not what stays."""
        others = (m for m in module.methods[class_name] if m.node.name != "__init__")
        return frozenset(name for method in others for name, _ in _assigned_on_self(method))

    def _holds_backend(self, module: Module, parameter: ast.arg) -> bool:
        if parameter.annotation is None:
            return parameter.arg.endswith("backend")
        return bool(self.annotated(module, parameter.annotation))

    def annotated(self, module: Module, annotation: ast.expr) -> frozenset[str]:
        """The backends that an annotation admits, seeing through Optional, List, unions and quotes."""
        admitted: set[str] = set()
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return frozenset()
        for node in ast.walk(annotation):
            if isinstance(node, (ast.Name, ast.Constant)):
                for key in self.resolve(module, node):
                    if self.base in self.order(key):
                        admitted |= self.heirs_of_scan(key)
        if isinstance(annotation, ast.Subscript) and "Callable" in ast.dump(annotation.value):
            return frozenset()
        return frozenset(admitted)

    def heirs_of_scan(self, key: str) -> frozenset[str]:
        return frozenset(k for k in list(self._classes) if key in self.order(k))


def _members(module: Module, node: ast.ClassDef) -> tuple[dict[str, Member], list[tuple[Function, Function]]]:
    members: dict[str, Member] = {}
    twins: list[tuple[Function, Function]] = []
    plain: dict[str, Function] = {}
    for method in module.methods[node.name]:
        for name, value in _assigned_on_self(method):
            members[name] = Member(name, "attribute", node.name, value)
    for statement in node.body:
        for name, value in _class_values(statement):
            if name not in members:
                members[name] = Member(name, "value", node.name, value)
    for method in module.methods[node.name]:
        name, decorators = method.node.name, [ast.unparse(d) for d in method.node.decorator_list]
        if any(d.endswith((".setter", ".deleter")) for d in decorators):
            continue
        kind = "property" if any(d.endswith(("property", "cached_property")) for d in decorators) else "def"
        members[name] = Member(name, kind, node.name, method.node)
        if not decorators and method.node in node.body:
            if name in plain:
                twins.append((plain[name], method))
            plain[name] = method
    return members, twins


def _assigned_on_self(function: Function) -> list[tuple[str, ast.expr]]:
    found: list[tuple[str, ast.expr]] = []
    for node in function.assigns:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if isinstance(element, ast.Attribute) and _is_self(element.value) and node.value is not None:
                    found.append((element.attr, node.value))
    for call in function.calls:
        sets = isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) == 3
        if sets and _is_self(call.args[0]) and isinstance(call.args[1], ast.Constant):
            found.append((str(call.args[1].value), call.args[2]))
    return found


def _class_values(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign):
        return [(t.id, statement.value) for t in statement.targets if isinstance(t, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and statement.value is not None and isinstance(statement.target, ast.Name):
        return [(statement.target.id, statement.value)]
    return []  # a bare annotation answers nothing at run time


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_list(annotation: ast.expr) -> bool:
    return any(w in ast.unparse(annotation).lower() for w in ("list[", "sequence[", "tuple[", "iterable["))


def _names_held(value: ast.expr) -> set[str]:
    """Parameters kept as they are: `x`, `[x, y]`, `list(x)`, not `x.attribute`."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, (ast.List, ast.Tuple)):
        return set().union(*(_names_held(e) for e in value.elts)) if value.elts else set()
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("list", "tuple"):
        return set().union(*(_names_held(a) for a in value.args)) if value.args else set()
    return set()


def _shown(value: ast.AST) -> str:
    text = ast.unparse(value)
    return text if len(text) <= VALUE_TEXT_MAX else text[: VALUE_TEXT_MAX - 1] + "…"


def _value_body(value: ast.AST) -> str:
    return f"value {ast.dump(value)}"


def _def_body(function: ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> str:
    """A text equal for two bodies that do the same: docstrings dropped, nothing-doing bodies alike."""
    body = list(function.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    body = [s for s in body if not isinstance(s, ast.Pass)]
    if not body or (len(body) == 1 and isinstance(body[0], ast.Return) and _is_none(body[0].value)):
        return "value Constant(value=None)" if kind == "property" else "nothing"
    if len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.dump(body[0]):
        return "refuse"
    if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None and kind == "property":
        return _value_body(body[0].value)
    return "; ".join(ast.dump(s) for s in body)


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
