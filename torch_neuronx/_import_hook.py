"""Runs a function when a module has been imported, without importing it now.

Dynamo takes more than a second to import, and must hear of the device when a program uses it, not before.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, action: Callable[[], None]):
        self._loader = loader
        self._action = action

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, action: Callable[[], None]):
        self._name = name
        self._action = action

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)  # once, and not for our own look-up
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec


def after_import(name: str, action: Callable[[], None]) -> None:
    """Calls ``action`` once, after the module has been imported; at once if it is there already."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(name, action))
