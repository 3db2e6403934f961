"""How the package is cut into modules, and what its comments are like."""

import ast
import io
import re
import tokenize
from pathlib import Path

import hdmlp
import pytest

PACKAGE = Path(hdmlp.__file__).parent

#: The packages, each with its subject: a module imports from its own package and those above it in
#: this table. The exceptions, and the public modules of ``hdmlp`` itself, have a row of their own.
PACKAGES = {
    "hdmlp.errors": "the public exceptions",
    "hdmlp._lib": "nothing of daemons, jobs or batches: arguments, memory, frames, progress",
    "hdmlp._daemon": "the daemon of this node: address, start, requests, its end",
    "hdmlp._launch": "what started this process: rank, node, secret",
    "hdmlp._records": "datasets that are lists of records: ranges of files, keys, labels",
    "hdmlp._batches": "the stream of batches, and the shared memory in which they lie",
    "hdmlp._transforms": "what the daemon and Python make of samples",
    "hdmlp._workers": "worker processes",
    "hdmlp._loading": "a job, its options, epochs, state and reports",
    "hdmlp": "the public modules data, job and transforms, and the command",
    "hdmlp.lib": "the thesis's integrated transformations",
    "hdmlp.torch._data": "datasets of torch, and what is made of their items",
    "hdmlp.torch._order": "orders that are known ahead, and those which samplers draw",
    "hdmlp.torch._engine": "what delivers a loader's batches",
    "hdmlp.torch": "the public classes for torch",
}


def modules():
    """The package's files by their names; that of a package is its ``__init__.py``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("hdmlp", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name, path, known):
    """The modules and packages that a module imports, for types only or in functions included."""
    parents = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join(base + (node.module.split(".") if node.module else []))
            names = [f"{base}.{alias.name}" for alias in node.names]
            names = [one if one in known else base for one in names]
        for one in names:
            if one in known and one != name:
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


def package(name):
    """The row of :data:`PACKAGES` which a module belongs to."""
    while name not in PACKAGES:
        name = name.rpartition(".")[0]
    return name


def upwards(graph):
    """The imports of a package that is below in :data:`PACKAGES`."""
    rows = list(PACKAGES)
    return [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in others
        if rows.index(package(name)) < rows.index(package(other))
    ]


def imported():
    """The modules and packages that each module imports."""
    known = modules()
    return {name: sorted(set(imports(name, path, known))) for name, path in known.items()}


def without_packages(graph):
    """A graph of modules only: a package's ``__init__.py`` passes on what its modules have."""
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    return {
        name: [other for other in others if other not in packages] for name, others in graph.items()
    }


def test_circles_are_found():
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) is None


def test_imports_upwards_are_found():
    graph = {
        "hdmlp._lib.memory": ["hdmlp._batches.stream", "hdmlp.errors"],
        "hdmlp._batches.stream": ["hdmlp._batches.acks", "hdmlp._lib.memory"],
        "hdmlp.data": ["hdmlp._loading.feed", "hdmlp.torch._data.items"],
        "hdmlp.torch._loader": ["hdmlp.torch._engine.local", "hdmlp.data"],
    }
    assert upwards(graph) == [
        "hdmlp._lib.memory imports hdmlp._batches.stream",
        "hdmlp.data imports hdmlp.torch._data.items",
    ]


def test_modules_import_each_other_in_no_circle():
    graph = without_packages(imported())
    assert "hdmlp._loading.feed" in graph["hdmlp._loading.base_loader"]
    assert "hdmlp._loading.base_loader" in graph["hdmlp.torch._engine.served"]
    assert circle(graph) is None


def test_packages_import_those_above_them_in_the_table_only():
    assert not upwards(imported())


def test_the_packages_are_those_of_the_table():
    names = {name for name, path in modules().items() if path.name == "__init__.py"}
    assert names == set(PACKAGES) - {"hdmlp.errors"}


def test_no_names_of_modules_differ_by_an_s_only():
    names = {name.rpartition(".")[2] for name, path in modules().items() if "." in name}
    assert not {name for name in names if f"{name}s" in names}


def test_modules_of_private_packages_have_no_underscore():
    private = [name for name in modules() if "._" in package(name)]
    assert not [name for name in private if "._" in name[len(package(name)) :]]


def test_few_types_are_any():
    texts = [path.read_text() for path in modules().values()]
    assert not [text for text in texts if re.search(r"= Any$|\bAny as\b", text, re.M)]
    occurrences = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    lines = sum(text.count("\n") for text in texts)
    assert occurrences <= 0.015 * lines, (
        f"{occurrences} occurrences of Any in {lines} lines: name the type, a Protocol with what "
        "is used of it, or object where nothing is"
    )


#: Words by which a comment has code talk, listen or want, but for texts that do say something;
#: house_figures_test.go has the same.
PERSONIFIED = re.compile(r"\b(told|tells|hears|knows|wants|says|lets go)\b")
LITERAL = re.compile(
    r"\b([Aa]n?|[Tt]he|[Ii]ts) (\w+ )?"
    r"(header|message|error|text|line|file|report|paper|thesis|sentence|warning|comment|document)s?"
    r"( \(?\w+\)?)? says\b|\.md says"
)


def comments(text):
    """The lines of a module's comments and docstrings."""
    first = True  # of a statement
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (first and token.type == tokenize.STRING):
            yield from token.string.splitlines()
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            first = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def test_comments_are_those_of_python():
    text = '"""a\n\nb"""\nx = "no"  # c\ndef f():\n    """d"""\n    return """no"""\n\n\n# e\n'
    assert list(comments(text)) == ['"""a', "", 'b"""', "# c", '"""d"""', "# e"]


@pytest.mark.parametrize("folder", ["python/hdmlp", "python/tests", "bench", "internal"])
def test_few_comments_have_code_talk_or_want(folder):
    paths = sorted((PACKAGE.parents[1] / folder).rglob("*.py"))
    lines = [line for path in paths for line in comments(path.read_text())]
    found = [line for line in lines if PERSONIFIED.search(LITERAL.sub("", line))]
    assert len(found) <= 0.005 * len(lines), "\n".join(found)
