"""How the package is cut into modules."""

import ast
from pathlib import Path

import hdmlp

PACKAGE = Path(hdmlp.__file__).parent


def modules():
    """The package's files by their names; that of a package is its ``__init__.py``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("hdmlp", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, path, known):
    """The package's modules that a module imports, for types only or within functions included.

    Packages are left out: their ``__init__.py`` passes on what their modules have.
    """
    parents = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join(base + (node.module.split(".") if node.module else []))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for one in names:
            if one in known and known[one].name != "__init__.py" and one != name:
                yield one


def circle(graph):
    """Modules each of which imports the next, and the last the first; None if there are none."""
    done = set()

    def walk(name, path):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return None
        for other in graph[name]:
            found = walk(other, [*path, name])
            if found:
                return found
        done.add(name)
        return None

    return next(filter(None, (walk(name, []) for name in graph)), None)


def test_circles_are_found():
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) is None


def test_modules_import_each_other_in_no_circle():
    known = modules()
    graph = {name: sorted(set(imports(name, path, known))) for name, path in known.items()}
    assert "hdmlp._loading.feed" in graph["hdmlp._loading.base_loader"]
    assert "hdmlp._loading.base_loader" in graph["hdmlp.torch._engine.served"]
    assert circle(graph) is None
