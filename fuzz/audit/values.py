"""What an expression of SGLang's code holds: which attention backend it may be, at one point of one function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fuzz.audit.facts import Conditions, State, apply, key_of
from fuzz.audit.reads import Receiver
from fuzz.audit.source import Function

if TYPE_CHECKING:
    from fuzz.audit.receivers import Readers

# The attributes in which a runner, a batch or a forward context keeps the backend that it was built with.
BACKEND_ATTRIBUTES = frozenset({"attn_backend", "decode_attn_backend"})


class Values:
    """Evaluates expressions against `_state`, what is known at the statement that the walk has come to."""

    def __init__(self, readers: Readers, function: Function) -> None:
        self.readers, self.function, self.classes = readers, function, readers.classes
        self.own_file = function.module.path in self.classes.leaf_files
        self._state = State()
        self._conditions = Conditions(self.evaluate, self._heirs, self._having, self._flags)

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
            return either(*(self.evaluate(v) for v in node.values))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            found = either(*(self.evaluate(e) for e in node.elts if not isinstance(e, ast.Starred)))
            starred = either(*(self.evaluate(e.value) for e in node.elts if isinstance(e, ast.Starred)))
            both = either(found, starred)
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
        return either(*found)

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
                found = either(found, Receiver(slot.wrappers, many=slot.many))
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
                chosen = either(*(self.readers.returned(m) for m in methods))
                return Receiver(chosen.wrappers, many=chosen.many) if chosen else None
        functions = self.readers.called(self.function, node.func, parse=False)
        return either(*(self.readers.returned(f) for f in functions if f.node.name != "__init__"))

    def _evaluate_getattr(self, node: ast.Call) -> Receiver | None:
        name, inner = node.args[1], self.evaluate(node.args[0])
        if not isinstance(name, ast.Constant):
            return None
        if inner is None:
            return self.readers.any_backend if name.value in BACKEND_ATTRIBUTES else None
        default = self.evaluate(node.args[2]) if len(node.args) > 2 else None
        if default is not None:
            default = default.without(self._having(str(name.value)))
        return either(self._slots_of(inner, str(name.value)), default)

    def _flags(self, key: str) -> frozenset[str]:
        """The backend's flags that a variable or attribute stands for."""
        return self._state.aliases.get(key) or self.readers.remembered_flags(self.function, key)

    def _heirs(self, node: ast.expr) -> frozenset[str]:
        named = node.elts if isinstance(node, ast.Tuple) else [node]
        keys = [k for n in named for k in self.classes.resolve(self.function.module, n)]
        return frozenset(h for k in keys for h in self.classes.heirs(k))

    def _having(self, name: str) -> frozenset[str]:
        return frozenset(w for w in self.classes.wrappers if self.classes.lookup(w, name) is not None)


def either(*receivers: Receiver | None) -> Receiver | None:
    found: Receiver | None = None
    for receiver in receivers:
        if receiver is not None:
            found = receiver if found is None else found | receiver
    return found
