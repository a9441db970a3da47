"""Which backends a release puts into which wrapper: a small abstract interpretation of how they are constructed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from fuzz.audit.classes import Classes
from fuzz.audit.source import Function, Module, Source

ROUNDS_MAX = 12  # walks until nothing new is learnt; the releases seen settle within five


@dataclass(frozen=True, slots=True)
class Token:
    """One thing that an expression may be: an instance of a class, a class itself, or a function."""

    kind: str
    key: str


class Nesting:
    """`children(wrapper, parameter)`: the concrete backends that constructor parameter is handed in this release."""

    def __init__(self, source: Source, classes: Classes) -> None:
        self.source, self.classes = source, classes
        self._functions = {f.key: f for m in source.scanned for f in m.all_functions()}
        self._lambdas: dict[str, tuple[ast.expr, Function]] = {}
        self._sites = _call_sites(source)
        self._known: dict[tuple[int, str], set[Token]] = {}
        self._visited: set[tuple[int, str]] = set()
        self._grew = False
        self._assigned: dict[str, dict[str, list[ast.expr]]] = {}
        self._aliases = [(t, o) for m in source.scanned for t, o in _aliases(m)]
        self._settled: dict[tuple[str, str], frozenset[str]] = {}

    def children(self, wrapper: str, parameter: str) -> frozenset[str]:
        """Class keys; several parameters are joined by `|`. Falls back on the annotation where no site is found."""
        owner = next(k for k in self.classes.order(wrapper) if "__init__" in self.classes[k].members)
        if (owner, parameter) not in self._settled:
            for _ in range(ROUNDS_MAX):
                self._visited.clear()
                self._grew = False
                found = self._handed_or_admitted(owner, parameter)
                if not self._grew:
                    break
            self._settled[owner, parameter] = frozenset(k for k in found if k in self.classes.backends)
        return self._settled[owner, parameter]

    def leaves(self, wrapper: str, parameter: str) -> frozenset[str]:
        """The leaf backends reached through that parameter, with wrappers in between opened."""
        reached: set[str] = set()
        todo = [(wrapper, parameter)]
        seen = set(todo)
        while todo:
            for child in self.children(*todo.pop()):
                if child not in self.classes.wrappers:
                    reached.add(child)
                    continue
                inner = {(child, p) for p in self.classes.slots(child).values()} - seen
                seen |= inner
                todo += inner
        return frozenset(reached)

    def kinds(self) -> dict[str, frozenset[str]]:
        """Leaf -> the names under which the release registers what may build it.

        The variants that one entry chooses among by hardware or model are one kind of backend to a user.
        """
        entries = [f for m in self.source.scanned for f in m.functions.values() if _entry_names(f)]
        built: dict[str, set[Token]] = {}
        for _ in range(ROUNDS_MAX):
            self._visited.clear()
            self._grew = False
            built = {entry.key: self._returned(entry) for entry in entries}
            if not self._grew:
                break
        found: dict[str, set[str]] = {}
        for entry in entries:
            for token in built[entry.key]:
                if token.kind == "instance":
                    found.setdefault(token.key, set()).update(_entry_names(entry)[:1])
        return {leaf: frozenset(names) for leaf, names in found.items()}

    def _handed_or_admitted(self, owner: str, parameter: str) -> set[str]:
        found: set[str] = set()
        for name in parameter.split("|"):
            found |= self._handed(owner, name) or self._admitted(owner, name)
        return found

    def _handed(self, owner: str, parameter: str) -> set[str]:
        init = self._init(owner)
        if init is None:
            return set()
        return {t.key for t in self._parameter(init, parameter) if t.kind == "instance"}

    def _admitted(self, owner: str, parameter: str) -> set[str]:
        init = self._init(owner)
        spec = next((p for p in init.parameters if p.arg == parameter), None) if init else None
        if spec is None or spec.annotation is None:
            return set(self.classes.leaves)
        admitted = self.classes.annotated(self.classes[owner].module, spec.annotation)
        return set(admitted) & set(self.classes.leaves)

    def _init(self, owner: str) -> Function | None:
        backend = self.classes[owner]
        return next((f for f in backend.module.methods[backend.name] if f.node.name == "__init__"), None)

    def _parameter(self, function: Function, name: str) -> set[Token]:
        """What the call sites of a function hand to one of its parameters."""
        positional = [p.arg for p in (*function.node.args.posonlyargs, *function.node.args.args)]
        if function.class_name is not None:
            positional = positional[1:]
        found: set[Token] = set()
        for call, site in self._calling(function):
            value = next((k.value for k in call.keywords if k.arg == name), None)
            if value is None and name in positional and positional.index(name) < len(call.args):
                value = call.args[positional.index(name)]
            if value is not None:
                found |= self._evaluate(value, site)
        return found

    def _calling(self, function: Function) -> Iterator[tuple[ast.Call, Function]]:
        if function.node.name != "__init__":
            yield from self._sites.get(function.node.name, [])
            return
        owner = f"{function.module.name}:{function.class_name}"
        for call, site in self._sites.get("__init__", []):
            if site.class_name and owner in self.classes.order(f"{site.module.name}:{site.class_name}")[1:]:
                yield call, site
        names = {self.classes[k].name for k in self.classes.heirs(owner)} | {"cls"}
        names |= {alias for alias, origin in self._aliases if origin in names}
        for name in sorted(names):
            for call, site in self._sites.get(name, []):
                if any(self._constructs(t.key, owner) for t in self._evaluate(call.func, site)):
                    yield call, site

    def _constructs(self, key: str, owner: str) -> bool:
        with_init = (k for k in self.classes.order(key) if "__init__" in self.classes[k].members)
        return next(with_init, None) == owner

    def _evaluate(self, node: ast.expr, scope: Function) -> set[Token]:
        """The tokens known so far; `children` repeats the walk until no expression gains another."""
        mark = (id(node), scope.key)
        if mark not in self._visited:
            self._visited.add(mark)
            known = self._known.setdefault(mark, set())
            fresh = self._evaluate_new(node, scope) - known
            if fresh:
                known |= fresh
                self._grew = True
        return self._known[mark]

    def _evaluate_new(self, node: ast.expr, scope: Function) -> set[Token]:
        def inner(child: ast.expr) -> set[Token]:
            return self._evaluate(child, scope)

        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.Name):
            return self._name(node, scope)
        if isinstance(node, ast.IfExp):
            return inner(node.body) | inner(node.orelse)
        if isinstance(node, ast.BoolOp):
            return set().union(*(inner(v) for v in node.values))
        if isinstance(node, (ast.List, ast.Tuple)):
            return set().union(*(inner(e) for e in node.elts)) if node.elts else set()
        if isinstance(node, ast.ListComp):
            return inner(node.elt)
        if isinstance(node, ast.Lambda):
            return {Token("lambda", self._remember(node, scope))}
        if isinstance(node, ast.Subscript):
            return inner(node.value) | self._registered(node.value, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        return set()

    def _remember(self, node: ast.Lambda, scope: Function) -> str:
        """A lambda sees the names of the function around it, so that function stays its scope."""
        key = f"lambda:{scope.key}:{node.lineno}:{node.col_offset}"
        self._lambdas[key] = (node.body, scope)
        return key

    def _call(self, node: ast.Call, scope: Function) -> set[Token]:
        found: set[Token] = set()
        for token in self._evaluate(node.func, scope):
            if token.kind == "class":
                found.add(Token("instance", token.key))
            elif token.kind == "lambda":
                found |= self._evaluate(*self._lambdas[token.key])
            elif token.kind == "function":
                found |= self._returned(self._functions[token.key])
        return found

    def _returned(self, function: Function) -> set[Token]:
        return set().union(*(self._evaluate(r.value, function) for r in function.returns if r.value is not None))

    def _name(self, node: ast.Name, scope: Function) -> set[Token]:
        if node.id == "cls" and scope.class_name:
            return {Token("class", f"{scope.module.name}:{scope.class_name}")}
        found: set[Token] = set()
        if scope.key not in self._assigned:
            self._assigned[scope.key] = _assignments(scope)
        for value in self._assigned[scope.key].get(node.id, []):
            found |= self._evaluate(value, scope)
        if any(p.arg == node.id for p in scope.parameters):
            found |= self._parameter(scope, node.id)
        for module, name in self.source.resolve(scope.module, node.id):
            found |= self._defined(module, name)
        return found

    def _defined(self, module: Module, name: str) -> set[Token]:
        if name in module.classes:
            key = f"{module.name}:{name}"
            return {Token("class", key)} if key in self.classes.backends else set()
        function = module.functions[name]
        self._functions.setdefault(function.key, function)
        return {Token("function", function.key)}

    def _attribute(self, node: ast.Attribute, scope: Function) -> set[Token]:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and scope.class_name:
            methods = scope.module.methods.get(scope.class_name, [])
            return {Token("function", m.key) for m in methods if m.node.name == node.attr}
        found: set[Token] = set()
        for module, name in self.source.resolve_expression(scope.module, node):
            found |= self._defined(module, name)
        for token in self._evaluate(node.value, scope):
            if token.key in self.classes.wrappers and node.attr in self.classes.slots(token.key):
                owner = next(k for k in self.classes.order(token.key) if "__init__" in self.classes[k].members)
                handed = self._handed_or_admitted(owner, self.classes.slots(token.key)[node.attr])
                found |= {Token("instance", k) for k in handed}
        return found

    def _registered(self, registry: ast.expr, scope: Function) -> set[Token]:
        """Entries of a table that a decorator fills: `TABLE[name](runner)` gives what those functions return."""
        if not isinstance(registry, ast.Name):
            return set()
        found: set[Token] = set()
        homes = [scope.module, *(self.source.module(o) for o, _ in scope.module.imports.get(registry.id, []))]
        for module in (m for m in homes if m is not None):
            fillers = {f.node.name for f in module.functions.values() if _fills(f, registry.id)}
            for user in self.source.scanned:
                for function in user.functions.values():
                    if any(
                        _terminal(d.func if isinstance(d, ast.Call) else d) in fillers
                        for d in function.node.decorator_list
                    ):
                        found.add(Token("function", function.key))
        return found


def _terminal(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _call_sites(source: Source) -> dict[str, list[tuple[ast.Call, Function]]]:
    sites: dict[str, list[tuple[ast.Call, Function]]] = {}
    for module in source.scanned:
        for function in module.all_functions():
            for call in function.calls:
                sites.setdefault(_terminal(call.func), []).append((call, function))
    return sites


def _aliases(module: Module) -> list[tuple[str, str]]:
    """(alias, original) for classes imported or assigned under another name."""
    found = [(alias, a) for alias, origins in module.imports.items() for _, a in origins if a and a != alias]
    statements = [s for s in module.tree.body if isinstance(s, ast.Assign)]
    statements += [a for f in module.all_functions() for a in f.assigns if isinstance(a, ast.Assign)]
    for statement in statements:
        if isinstance(statement.value, ast.Name):
            found += [(t.id, statement.value.id) for t in statement.targets if isinstance(t, ast.Name)]
    return found


def _assignments(function: Function) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for statement in function.assigns:
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if isinstance(target, ast.Name) and statement.value is not None:
                found.setdefault(target.id, []).append(statement.value)
    return found


def _entry_names(function: Function) -> list[str]:
    """The names under which decorators such as `@register_attention_backend("triton")` enter a function."""
    return [
        str(d.args[0].value)
        for d in function.node.decorator_list
        if isinstance(d, ast.Call) and "attention_backend" in _terminal(d.func)
        if d.args and isinstance(d.args[0], ast.Constant)
    ]


def _fills(function: Function, table: str) -> bool:
    targets = (t for a in function.assigns if isinstance(a, ast.Assign) for t in a.targets)
    return any(isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name) and t.value.id == table for t in targets)
