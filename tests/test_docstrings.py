"""Public docstrings are complete, by numpydoc's own validation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import dfwtrace as dt

MODULES = [dt, dt.datasets, dt.lmo, dt.losses, dt.plotting, dt.report]

# Not asked for: extended summaries, "See Also", line breaks, full stops after descriptions of
# types, and the typography of sentences that begin with mathematics.
IGNORED = {"ES01", "SA01", "SA04", "GL01", "GL02", "GL03", "YD01"}
IGNORED |= {"PR08", "PR09", "RT04", "RT05", "SS02"}

# Of methods other than the estimators': one sentence may say it all.
SHORT = {"EX01", "PR01", "RT01"}


def public() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name in getattr(module, "__all__", None) or list(vars(module)):
            thing = getattr(module, name)
            documented = inspect.isclass(thing) or inspect.isfunction(thing)
            if name[0] != "_" and documented and thing.__module__.startswith(module.__name__):
                yield f"{thing.__module__}.{thing.__qualname__}", thing


PUBLIC = dict(public())


def errors_in(name: str, ignored: set[str]) -> list[str]:
    found = validate(name)["errors"]
    return [f"{name}: {code} {text}" for code, text in found if code not in ignored]


def own_members(thing: type) -> Iterator[str]:
    """Methods and properties that a class, or a private base of it, has first."""
    bases = [base for base in thing.__mro__ if base.__module__.startswith("dfwtrace")]
    for kind in (base for base in bases if base is thing or base not in PUBLIC.values()):
        for member, value in vars(kind).items():
            method = inspect.isfunction(value) or isinstance(value, property | classmethod)
            inherited = any(member in vars(base) for base in kind.__mro__[1:])
            overridden = inspect.getattr_static(thing, member) is not value
            if member[0] != "_" and method and not inherited and not overridden:
                yield member


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstrings_are_complete(name: str) -> None:
    thing, ignored = PUBLIC[name], set(IGNORED)
    if inspect.isclass(thing):
        attributes = NumpyDocString(inspect.getdoc(thing))["Attributes"]
        # Fields of what the package returns are attributes; errors and interfaces need no example.
        fields = set(vars(thing).get("__annotations__", ()))
        described = {part for each in attributes for part in each.name.split(", ")}
        interface = issubclass(thing, Exception) or thing.__mro__[1] is Protocol
        ignored |= {"EX01"} if attributes or interface else set()
        ignored |= {"PR01"} if (attributes and described >= fields) or interface else set()
    wrong = errors_in(name, ignored)
    unasked = {"EX01"} if name.startswith("dfwtrace.estimators") else SHORT
    for member in own_members(thing) if inspect.isclass(thing) else ():
        wrong += errors_in(f"{name}.{member}", IGNORED | unasked)
    assert not wrong, "\n".join(wrong)


def test_there_is_something_to_validate() -> None:
    assert {"dfwtrace.api.solve", "dfwtrace.lmo.oracles.SVA"} <= PUBLIC.keys()
