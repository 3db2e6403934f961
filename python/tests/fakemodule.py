"""A module of a library that is not installed, or of a release that is not."""

import sys
import types


class _Fake:
    """Has the attributes that it is made with, and returns what it is called with."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __call__(self, x):
        return x


def with_classes(monkeypatch, name, classes):
    """Returns the module of this name, with classes of these names that do nothing."""
    module = types.ModuleType(name)
    for of in classes:
        setattr(module, of, type(of, (_Fake,), {"__module__": name}))
    monkeypatch.setitem(sys.modules, name, module)
    return module
