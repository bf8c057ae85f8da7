"""Public docstrings are complete, by numpydoc's own validation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Protocol

import pytest
from numpydoc.validate import validate

import dfwtrace as dt

MODULES = [dt.datasets, dt.lmo, dt.losses, dt.plotting, dt.report]

# Not asked for: extended summaries, "See Also", descriptions where the type says all, and the
# typography of sentences that begin with mathematics.
IGNORED = {"ES01", "SA01", "SA04", "GL01", "GL02", "GL03", "YD01"}
IGNORED |= {"PR07", "PR08", "PR09", "RT03", "RT04", "RT05", "SS02", "SS05", "SS06"}
# Asked of functions and classes, but not of each method.
OF_METHODS = IGNORED | {"EX01", "PR01", "PR02", "RT01", "RT02"}
# Errors and interfaces need no example, and fields of what the package returns are attributes.
OF_RESULTS = IGNORED | {"EX01", "PR01"}


def is_public(name: str, thing: Any, module: ModuleType) -> bool:
    documented = inspect.isclass(thing) or inspect.isfunction(thing)
    home = getattr(thing, "__module__", "")
    return name[0] != "_" and documented and home.startswith(module.__name__)


def public() -> Iterator[tuple[str, Any]]:
    for module in (dt, *MODULES):
        for name in getattr(module, "__all__", None) or list(vars(module)):
            thing = getattr(module, name)
            if is_public(name, thing, module):
                yield f"{thing.__module__}.{thing.__qualname__}", thing


PUBLIC = dict(public())


def errors_in(name: str, ignored: set[str]) -> list[str]:
    found = validate(name)["errors"]
    return [f"{name}: {code} {text}" for code, text in found if code not in ignored]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstrings_are_complete(name: str) -> None:
    thing = PUBLIC[name]
    is_class = inspect.isclass(thing)
    returned = is_class and (
        issubclass(thing, Exception)
        or "\n    Attributes\n" in (thing.__doc__ or "")
        or thing.__mro__[1] is Protocol
    )
    wrong = errors_in(name, OF_RESULTS if returned else IGNORED)
    for member, value in vars(thing).items() if is_class else ():
        method = inspect.isfunction(value) or isinstance(value, property | classmethod)
        inherited = any(member in vars(base) for base in (thing.__mro__[1:] if is_class else ()))
        if method and member[0] != "_" and not inherited:
            wrong += errors_in(f"{name}.{member}", OF_METHODS)
    assert not wrong, "\n".join(wrong)


def test_there_is_something_to_validate() -> None:
    assert {"dfwtrace.api.solve", "dfwtrace.lmo.oracles.SVA"} <= PUBLIC.keys()
