"""Walks one function of SGLang, statement by statement, with what is known of the backends in it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fuzz.audit.facts import Conditions, State, apply, ends_here, key_of
from fuzz.audit.reads import CALL, GUARDED, PLAIN, STORE, Read, Receiver
from fuzz.audit.signatures import shape_of
from fuzz.audit.source import Function

if TYPE_CHECKING:
    from fuzz.audit.receivers import Readers

# The attributes in which a runner, a batch or a forward context keeps the backend that it was built with.
BACKEND_ATTRIBUTES = frozenset({"attn_backend", "decode_attn_backend"})
AnyComprehension = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class FunctionWalker:
    def __init__(self, readers: Readers, function: Function) -> None:
        self.readers, self.function, self.classes = readers, function, readers.classes
        self.own_file = function.module.path in self.classes.leaf_files
        key = f"{function.module.name}:{function.class_name}"
        self.inside = key if function.class_name and key in self.classes.wrappers else None
        self._state = State()
        self._found: dict[Read, None] = {}
        self._returned: Receiver | None = None
        self._conditions = Conditions(self.evaluate, self._heirs, self._having, self._flags)

    def reads(self) -> tuple[Read, ...]:
        self._walk()
        return tuple(self._found)

    def returned(self) -> Receiver | None:
        self._walk()
        return self._returned

    def _walk(self) -> None:
        self._state = State(self.readers.parameters(self.function))
        self._block(self.function.node.body)

    # Statements

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            outer = self._state.copy()
            returned = self._returned
            self._block(node.body)
            self._state, self._returned = outer, returned
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._expression(node.iter)
            self._bind_loop(node.target, node.iter)
            self._block(node.body + node.orelse)
        elif isinstance(node, ast.While):
            self._expression(node.test)
            apply(self._state, self._conditions.of(node.test)[0])
            self._block(node.body + node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._expression(item.context_expr)
            self._block(node.body)
        elif isinstance(node, ast.Try):
            self._try(node)
        else:
            self._simple(node)

    def _if(self, node: ast.If) -> None:
        self._expression(node.test)
        self._pin(node.test)
        true, false = self._conditions.of(node.test)
        before = self._state
        body, other = before.copy(), before.copy()
        apply(body, true)
        apply(other, false)
        self._state = body
        self._block(node.body)
        body = self._state
        self._state = other
        self._block(node.orelse)
        if ends_here(node.body):
            return
        if not ends_here(node.orelse):
            body.join(self._state)
        self._state = body

    def _try(self, node: ast.Try) -> None:
        before = self._state.present
        if any(h.type is not None and "AttributeError" in ast.dump(h.type) for h in node.handlers):
            self._state.present |= {("*", "*")}
        self._block(node.body)
        self._state.present = before
        for handler in node.handlers:
            self._block(handler.body)
        self._block(node.orelse + node.finalbody)

    def _simple(self, node: ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value)
        elif isinstance(node, ast.Assert):
            self._pin(node.test)
            apply(self._state, self._conditions.of(node.test)[0])
        elif isinstance(node, ast.Return) and node.value is not None:
            receiver = self.evaluate(node.value)
            if receiver is not None:
                self._returned = self._returned | receiver if self._returned else receiver

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            for part, part_value in zip(target.elts, value.elts, strict=False):
                self._bind(part, part_value)
            return
        key, receiver = key_of(target), self.evaluate(value)
        if not key:
            return
        flags = self._conditions.of(value)[0].flags
        if flags:
            self._state.aliases[key] = flags
            self.readers.remember_flags(self.function, key, flags)
        for stale in [k for k in self._state.backends if k == key or k.startswith(f"{key}.")]:
            del self._state.backends[stale]
        self._state.methods.pop(key, None)
        method = self._method(value)
        if method is not None:
            self._state.methods[key] = method
        if receiver is not None:
            self._state.backends[key] = receiver
            if key.startswith("self.") and key.count(".") == 1:
                self.readers.keep(self.function, key[5:], receiver)

    def _method(self, value: ast.expr) -> tuple[Receiver, str] | None:
        """The backend's method that `x = backend.name` or `x = getattr(backend, "name", ...)` keeps."""
        base, name = None, ""
        if isinstance(value, ast.Attribute):
            base, name = self.evaluate(value.value), value.attr
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "getattr":
            if len(value.args) > 1 and isinstance(value.args[1], ast.Constant):
                base, name = self.evaluate(value.args[0]), str(value.args[1].value)
        return (base, name) if base is not None and not base.many else None

    def _bind_loop(self, target: ast.expr, iterable: ast.expr) -> None:
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
            if iterable.func.id == "zip" and isinstance(target, (ast.Tuple, ast.List)):
                for part, source in zip(target.elts, iterable.args, strict=False):
                    self._bind_loop(part, source)
                return
            if iterable.func.id == "enumerate" and isinstance(target, (ast.Tuple, ast.List)) and iterable.args:
                self._bind_loop(target.elts[-1], iterable.args[0])
                return
        receiver = self.evaluate(iterable)
        if receiver is not None and receiver.many and isinstance(target, ast.Name):
            self._state.backends[target.id] = receiver.one
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(iterable, (ast.Tuple, ast.List)):
            for row in iterable.elts:
                if isinstance(row, (ast.Tuple, ast.List)):
                    self._bind(ast.Tuple(target.elts), ast.Tuple(row.elts))

    # Expressions: each read is noted once, where it stands

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            self._bool(node)
        elif isinstance(node, ast.IfExp):
            self._if_expression(node)
        elif isinstance(node, AnyComprehension):
            self._comprehension(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Attribute):
            self._note_attribute(node)
            self._expression(node.value)
        elif isinstance(node, ast.NamedExpr):
            self._expression(node.value)
            self._bind(node.target, node.value)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._expression(child)

    def _bool(self, node: ast.BoolOp) -> None:
        before = self._state
        self._state = before.copy()
        for value in node.values:
            self._expression(value)
            self._pin(value)
            apply(self._state, self._conditions.of(value)[0 if isinstance(node.op, ast.And) else 1])
        self._state = before

    def _if_expression(self, node: ast.IfExp) -> None:
        self._expression(node.test)
        before = self._state
        for branch, facts in zip((node.body, node.orelse), self._conditions.of(node.test), strict=True):
            self._state = before.copy()
            self._pin(node.test)
            apply(self._state, facts)
            self._expression(branch)
        self._state = before

    def _comprehension(self, node: ast.expr) -> None:
        before = self._state
        self._state = before.copy()
        for generator in node.generators:  # type: ignore[attr-defined]  # every comprehension has them
            self._expression(generator.iter)
            self._bind_loop(generator.target, generator.iter)
            for test in generator.ifs:
                self._expression(test)
                apply(self._state, self._conditions.of(test)[0])
        for child in ("elt", "key", "value"):
            if hasattr(node, child):
                self._expression(getattr(node, child))
        self._state = before

    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            receiver = self.evaluate(node.func.value)
            if receiver is not None and not receiver.many:
                self._note(node.func.value, node.func.attr, CALL, receiver, node)
            self._expression(node.func.value)
        elif isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
            receiver = self.evaluate(node.args[0])
            if receiver is not None and isinstance(node.args[1], ast.Constant):
                plain = node.func.id == "getattr" and len(node.args) == 2
                self._note(node.args[0], str(node.args[1].value), PLAIN if plain else GUARDED, receiver, None)
        elif isinstance(node.func, ast.Name) and node.func.id in self._state.methods:
            receiver, name = self._state.methods[node.func.id]
            self._note(node.func, name, GUARDED, receiver, node)
        else:
            self._expression(node.func)
        for argument in (*node.args, *(k.value for k in node.keywords)):
            self._expression(argument)
        self._hand_over(node)

    def _hand_over(self, node: ast.Call) -> None:
        held = [(a, self.evaluate(a)) for a in (*node.args, *(k.value for k in node.keywords))]
        if not any(r for _, r in held):
            return
        by_node = {id(a): r for a, r in held if r}
        for function in self.readers.called(self.function, node.func):
            if function.class_name and f"{function.module.name}:{function.class_name}" in self.classes.backends:
                continue
            positional = [p.arg for p in (*function.node.args.posonlyargs, *function.node.args.args)]
            positional = positional[1:] if function.class_name else positional
            pairs = list(zip(positional, node.args, strict=False))
            pairs += [(k.arg, k.value) for k in node.keywords if k.arg is not None]
            for name, value in pairs:
                if id(value) in by_node:
                    self.readers.hand(function, name, by_node[id(value)])

    def _note_attribute(self, node: ast.Attribute) -> None:
        receiver = self.evaluate(node.value)
        if receiver is not None and not receiver.many:
            stored = isinstance(node.ctx, (ast.Store, ast.Del))
            self._note(node.value, node.attr, STORE if stored else PLAIN, receiver, None)

    def _note(self, base: ast.expr, name: str, access: str, receiver: Receiver, call: ast.Call | None) -> None:
        if not (receiver.wrappers or receiver.slots):
            return
        present = self._state.present
        if access in (PLAIN, CALL) and ((key_of(base), name) in present or ("*", "*") in present):
            access = GUARDED
        shape = shape_of(call) if call is not None else None
        module, flags = self.function.module, self._state.flags - {name}
        self._found[
            Read(name, access, receiver, module.path, self.function.qualname, flags, shape, self.inside)
        ] = None

    # Values

    def evaluate(self, node: ast.expr) -> Receiver | None:
        """The backend that an expression holds here, or None."""
        key = key_of(node)
        if key and key in self._state.backends:
            return self._state.backends[key]
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._evaluate_call(node)
        if isinstance(node, ast.IfExp):
            return self._evaluate_if(node)
        if isinstance(node, ast.BoolOp):
            return _either(*(self.evaluate(v) for v in node.values))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            found = _either(*(self.evaluate(e) for e in node.elts if not isinstance(e, ast.Starred)))
            starred = _either(*(self.evaluate(e.value) for e in node.elts if isinstance(e, ast.Starred)))
            both = _either(found, starred)
            return Receiver(both.wrappers, both.slots, many=True) if both else None
        if isinstance(node, ast.Subscript):
            inner = self.evaluate(node.value)
            return inner.one if inner is not None and inner.many else None
        return None

    def _evaluate_if(self, node: ast.IfExp) -> Receiver | None:
        before, found = self._state, []
        for branch, facts in zip((node.body, node.orelse), self._conditions.of(node.test), strict=True):
            self._state = before.copy()
            self._pin(node.test)
            apply(self._state, facts)
            found.append(self.evaluate(branch))
        self._state = before
        return _either(*found)

    def _pin(self, test: ast.expr) -> None:
        """Writes what attributes such as `self.child` hold into the state, where a condition can narrow it."""
        for node in ast.walk(test):
            if isinstance(node, (ast.Attribute, ast.Call)) and key_of(node):
                receiver = self.evaluate(node)
                if receiver is not None:
                    self._state.backends.setdefault(key_of(node), receiver)

    def _attribute(self, node: ast.Attribute) -> Receiver | None:
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if own and node.attr in self.readers.kept(self.function):
            return self.readers.kept(self.function)[node.attr]
        if node.attr in BACKEND_ATTRIBUTES and not (own and self.own_file):
            return self.readers.any_backend
        inner = self.evaluate(node.value)
        if inner is None or inner.many:
            return None
        return self._slots_of(inner, node.attr)

    def _slots_of(self, receiver: Receiver, attribute: str) -> Receiver | None:
        found: Receiver | None = None
        for wrapper in receiver.wrappers:
            parameter = self.classes.slots(wrapper).get(attribute)
            if parameter is not None:
                many = any(attribute in self.classes[k].many for k in self.classes.order(wrapper))
                slot = self.readers.slot(wrapper, parameter, many=many)
                found = _either(found, Receiver(slot.wrappers, many=slot.many))
        return found

    def _evaluate_call(self, node: ast.Call) -> Receiver | None:
        if isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2:
            return self._evaluate_getattr(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "reversed") and node.args:
            return self.evaluate(node.args[0])
        if isinstance(node.func, ast.Attribute):
            inner = self.evaluate(node.func.value)
            if inner is not None and not inner.many:
                methods = self.readers.methods_of(inner.wrappers, node.func.attr)
                chosen = _either(*(self.readers.returned(m) for m in methods))
                return Receiver(chosen.wrappers, many=chosen.many) if chosen else None
        functions = self.readers.called(self.function, node.func)
        return _either(*(self.readers.returned(f) for f in functions if f.node.name != "__init__"))

    def _evaluate_getattr(self, node: ast.Call) -> Receiver | None:
        name, inner = node.args[1], self.evaluate(node.args[0])
        if not isinstance(name, ast.Constant):
            return None
        if inner is None:
            return self.readers.any_backend if name.value in BACKEND_ATTRIBUTES else None
        default = self.evaluate(node.args[2]) if len(node.args) > 2 else None
        if default is not None:
            default = default.without(self._having(str(name.value)))
        return _either(self._slots_of(inner, str(name.value)), default)

    def _flags(self, key: str) -> frozenset[str]:
        """The backend's flags that a variable or attribute stands for."""
        return self._state.aliases.get(key) or self.readers.remembered_flags(self.function, key)

    def _heirs(self, node: ast.expr) -> frozenset[str]:
        named = node.elts if isinstance(node, ast.Tuple) else [node]
        keys = [k for n in named for k in self.classes.resolve(self.function.module, n)]
        return frozenset(h for k in keys for h in self.classes.heirs(k))

    def _having(self, name: str) -> frozenset[str]:
        return frozenset(w for w in self.classes.wrappers if self.classes.lookup(w, name) is not None)


def _either(*receivers: Receiver | None) -> Receiver | None:
    found: Receiver | None = None
    for receiver in receivers:
        if receiver is not None:
            found = receiver if found is None else found | receiver
    return found
