"""Giving a wrapper exactly the capabilities of the saver it wraps, by type.

LangGraph and its conformance suite ask a saver's type: a method that is `BaseCheckpointSaver`'s own
is a capability that it lacks. So every method that `BaseCheckpointSaver` has is mirrored, whichever
those are in the installed release.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

ORIGIN = "_mirrors"
"""Attribute of a mirroring class: the class it was made from."""


def mirroring(wrapper: type, inner: type) -> type:
    """Return a subclass of a wrapper class with the capabilities of an inner saver's class.

    A method that the inner class implements is the wrapper's own if it has one, and is passed on to
    `self.inner` otherwise. A method that it does not implement is `BaseCheckpointSaver`'s, unless a
    subclass of the wrapper brings one of its own.

    Args:
        wrapper: The wrapper class, or a class that this function made.
        inner: The inner saver's class.

    Returns:
        The class; the same one for the same arguments.
    """
    return _mirroring(getattr(wrapper, ORIGIN, wrapper), inner)


@functools.lru_cache(maxsize=512)
def _mirroring(wrapper: type, inner: type) -> type:
    # Passed-on methods stand behind the wrapper's in the method resolution order, so that a
    # subclass that extends one reaches it with super().
    passed_on: dict[str, Any] = {"__module__": wrapper.__module__}
    masked: dict[str, Any] = {"__module__": wrapper.__module__, ORIGIN: wrapper}
    for name, base in _members():
        theirs = inspect.getattr_static(inner, name, base)
        ours = inspect.getattr_static(wrapper, name)
        implemented = theirs is not base
        if implemented:
            passed_on[name] = _passing_on(name, theirs)
        elif ours is not base and ours is _own(wrapper, name):
            masked[name] = base
    masked["__doc__"] = wrapper.__doc__
    behind = type("PassedOn", (BaseCheckpointSaver,), passed_on)
    title = f"{wrapper.__name__}[{inner.__name__}]"
    masked["__qualname__"] = title
    return type(title, (wrapper, behind), masked)


def _members() -> list[tuple[str, Any]]:
    """Return every method and property of `BaseCheckpointSaver`, with its definition."""
    found: dict[str, Any] = {}
    for owner in BaseCheckpointSaver.__mro__:
        if owner in (object, typing.Generic):
            continue
        for name, member in vars(owner).items():
            dunder = name.startswith("__") and name.endswith("__")
            if not dunder and (inspect.isroutine(member) or isinstance(member, property)):
                found.setdefault(name, member)
    return list(found.items())


def _own(wrapper: type, name: str) -> Any:
    """Return the definition that the package's own wrapper class has of a method."""
    for owner in wrapper.__mro__:
        if owner.__dict__.get("_is_own_wrapper") is True:
            return owner.__dict__.get(name)
    return None


def _passing_on(name: str, theirs: Any) -> Any:
    if isinstance(theirs, property):
        return property(lambda self: getattr(self.inner, name), doc=theirs.__doc__)
    if isinstance(theirs, (staticmethod, classmethod)):
        theirs = theirs.__func__
    method: Callable[..., Any]
    if inspect.iscoroutinefunction(theirs):

        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await getattr(self.inner, name)(*args, **kwargs)
    else:

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(self.inner, name)(*args, **kwargs)

    # Callers look at the signature: whether put_writes takes a task_path, say.
    return functools.wraps(theirs)(method)
