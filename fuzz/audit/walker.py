"""Walks one function of SGLang, statement by statement, with what is known of the backends in it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fuzz.audit.facts import State, apply, ends_here, key_of
from fuzz.audit.reads import CALL, GUARDED, PLAIN, STORE, Read, Receiver
from fuzz.audit.signatures import shape_of
from fuzz.audit.source import Function
from fuzz.audit.values import Values

if TYPE_CHECKING:
    from fuzz.audit.receivers import Readers

AnyComprehension = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class FunctionWalker(Values):
    def __init__(self, readers: Readers, function: Function) -> None:
        super().__init__(readers, function)
        key = f"{function.module.name}:{function.class_name}"
        self.inside = key if function.class_name and key in self.classes.wrappers else None
        self._found: dict[Read, None] = {}
        self._returned: Receiver | None = None

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
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "getattr" and len(value.args) > 1:
            base, name = self.evaluate(value.args[0]), ast.unparse(value.args[1]).strip("'\"")
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
        for function in self.readers.called(self.function, node.func, parse=True):
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
        self._found[Read(name, access, receiver, module.path, self.function.qualname, flags, shape, self.inside)] = None
