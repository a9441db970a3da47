"""Names of stand-in packages that nobody has written: they may be imported, and raise with their name when called."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn


class UnwrittenError(NotImplementedError):
    """Something of a stood-in package was called that seamripper has not written."""


class Unwritten(type):
    """The type of every unwritten name. Such a name is itself a class, so that it may stand in an annotation, in
    ``isinstance`` or among a class's bases while a file that defines kernels is imported; its attributes are
    unwritten too.
    """

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise UnwrittenError(
            f"seamripper has no stand-in for {cls.__module__}.{cls.__qualname__}: it needs the real package or a GPU"
        )

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{cls!r} has no attribute {name!r}", name=name, obj=cls)
        return unwritten(cls.__module__, f"{cls.__qualname__}.{name}")

    def __getitem__(cls, key: object) -> Unwritten:
        return cls

    def __repr__(cls) -> str:
        return f"<unwritten {cls.__module__}.{cls.__qualname__}>"


def unwritten(module: str, name: str) -> Unwritten:
    """The unwritten name ``module.name``."""
    return Unwritten(name.rpartition(".")[2], (), {"__module__": module, "__qualname__": name})


class UnwrittenModule(ModuleType):
    """A package whose every public name, unless set, is unwritten. ``hasattr`` is therefore true of any name."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"seamripper's stand-in for {name}; see stubs/packages.")
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        return unwritten(self.__name__, name)
