"""Who may import whom: one table for every package, and every import in the tree is held to it, inside functions too.

And what the light commands may pull in.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import graphlib
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import bench, python

ROOT = Path(__file__).parent.parent
TREES = ("attacks", "bench", "benchmarks", "defences", "examples", "leaderboard", "tests", "tools")
HEAVY = ("keras", "ray", "tensorflow")
"""Libraries that take seconds to import: in the table like packages of our own."""

TENSORS = ("keras", "tensorflow")
CONTRACT = (
    "bench", "bench.api", "bench.attacker_keys", "bench.batches", "bench.entry_points", "bench.errors", "bench.in_memory",
    "bench.key_checks", "bench.keys",
    "bench.norms", "bench.order", "bench.plan", "bench.registry", "bench.spec", "bench.support",
)  # fmt: skip
MODELS = (*CONTRACT, *TENSORS, "bench.data", "bench.store", "bench.models")
EVALUATION = (*MODELS, "bench.executors", "bench.keysearch", "bench.vault", "bench.evaluation", "bench.exchange")
EVERYTHING = (
    *EVALUATION, "ray", "attacks", "attacks.engines", "attacks.health", "attacks.parts", "attacks.strategies",
    "bench.commands",
    "bench.cli", "bench.python_api", "bench.python_arguments", "bench.reproduction", "bench.result", "bench.site",
    "bench.testing", "defences", "leaderboard",
)  # fmt: skip

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # Plug-ins: the contract and their own package.
    "attacks": ("attacks.engines", "attacks.parts", "bench.api", *TENSORS),
    "attacks.engines": ("attacks.parts", "bench.api", *TENSORS),
    "attacks.health": ("attacks", "attacks.engines", "attacks.parts", "bench.api", *TENSORS),
    "attacks.parts": ("bench.api", *TENSORS),
    "attacks.strategies": ("attacks.parts", "bench.api", *TENSORS),
    "defences": ("bench.api", *TENSORS),
    "examples": ("bench", "bench.api", "bench.testing", *TENSORS),
    # The contract, and what everything stands on.
    "bench": ("bench.errors",),
    "bench.attacker_keys": (),
    "bench.batches": TENSORS,
    "bench.errors": (),
    "bench.flags": (),
    "bench.health": ("bench.errors",),
    "bench.entry_points": ("bench.errors", "bench.support"),
    "bench.api": (
        "bench.attacker_keys", "bench.batches", "bench.errors", "bench.flags", "bench.health", "bench.norms",
        "bench.sources", *TENSORS,
    ),
    "bench.in_memory": ("bench.api", "bench.entry_points", "bench.registry", "bench.support"),
    "bench.key_checks": ("bench.api", "bench.keys", "bench.support"),
    "bench.keys": ("bench.api", "bench.support"),
    "bench.norms": ("bench.entry_points", "bench.errors", *TENSORS),
    "bench.order": ("bench.plan", "bench.support"),
    "bench.plan": ("bench.api", "bench.norms", "bench.registry", "bench.spec", "bench.support"),
    "bench.registry": ("bench.api", "bench.entry_points", "bench.support"),
    "bench.spec": ("bench.api", "bench.norms", "bench.registry", "bench.support"),
    "bench.sources": ("bench.batches", *TENSORS),
    "bench.support": ("bench.errors", "tensorflow"),
    # One on top of the other.
    "bench.data": (*CONTRACT, *TENSORS),
    "bench.store": ("bench.api", "bench.norms", "bench.support"),
    "bench.models": (*CONTRACT, *TENSORS, "bench.data", "bench.store"),
    "bench.testing": ("bench.api", "bench.models", "bench.norms", "bench.registry", "bench.support", *TENSORS),
    "bench.executors": (*MODELS, "ray"),
    "bench.keysearch": (*MODELS, "bench.executors"),
    "bench.vault": (*MODELS, "bench.executors"),
    "bench.evaluation": (*MODELS, "bench.executors", "bench.keysearch", "bench.vault"),
    "bench.exchange": (*CONTRACT, "bench.data", "bench.store", "bench.models", "bench.vault", "bench.evaluation"),
    "leaderboard": ("bench.api", "bench.norms", "bench.store", "bench.support"),
    "bench.reproduction": (*EVALUATION, "leaderboard"),
    "bench.commands": (
        *CONTRACT, "bench.data", "bench.store", "bench.models", "bench.executors", "bench.keysearch", "bench.vault",
        "bench.evaluation", "bench.exchange", "bench.site", "leaderboard", "bench.reproduction",
    ),
    "bench.site": ("bench.evaluation", "bench.support", "leaderboard"),
    "bench.result": ("bench.evaluation", "bench.site", "bench.store", "bench.support"),
    "bench.python_arguments": (
        "bench.api", "bench.data", "bench.in_memory", "bench.keys", "bench.spec", "bench.store",
    ),
    "bench.python_api": (
        "bench.errors", "bench.evaluation", "bench.executors", "bench.in_memory", "bench.keys", "bench.models",
        "bench.python_arguments", "bench.result", "bench.spec", "bench.support", "bench.vault", *TENSORS,
    ),
    "bench.cli": ("bench", "bench.commands", "bench.errors", "bench.keys", "bench.store", "bench.support"),
    # Around the packages: nothing imports these.
    "benchmarks": (*EVERYTHING, "tests"),
    "tests": (*EVERYTHING, "tools"),
    "tools": EVERYTHING,
}  # fmt: skip
"""What the modules of a package may import besides each other. Every package directly below `attacks` and `bench` has a
row of its own, and every module directly in `bench`."""

FIRST_NAMES = "what users write is bench.NAME, and it is imported on first use"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("bench", module): FIRST_NAMES for module in ("bench.keys", "bench.python_api", "bench.result")
}
"""Imports (of a module, by a module) that break the table, each with the reason why it has to."""


@dataclasses.dataclass(frozen=True)
class Import:
    """That a module imports another, and the line where it does."""

    importer: str
    imported: str
    line: str


def module_name(path: Path) -> str:
    """bench.store.queries of bench/store/queries.py; the package of an __init__.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path) -> dict[str, Path]:
    """Every module of the tree by its name."""
    found = sorted(path.relative_to(root) for tree in TREES for path in (root / tree).rglob("*.py"))
    return {module_name(path): path for path in found}


def imports(root: Path) -> Iterator[Import]:
    """Every import of a module of the tree, or of a heavy library, wherever in a file it is."""
    known = modules(root)
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for line, target in _imported((root / path).read_text(), package):
            found = _resolved(target, known)
            if found is not None and found != name:
                yield Import(name, found, f"{path}:{line}")


@functools.cache
def _imported(text: str, package: str) -> list[tuple[int, str]]:
    """What the text of a module of a package imports: the line, and the name in full."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)]
    return [(node.lineno, target) for node in nodes for target in _targets(node, package)]


def _targets(node: ast.Import | ast.ImportFrom | ast.Call, package: str) -> list[str]:
    """The names that a node imports, in full."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{module}.{alias.name}" for alias in node.names]
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
        return [str(node.args[0].value)]
    return []


def _resolved(target: str, known: dict[str, Path]) -> str | None:
    """The module that a name is or is in; None if it is of another library."""
    if target.split(".")[0] in HEAVY:
        return target.split(".")[0]
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in known:
            return name
    return parts[0] if parts[0] in TREES else None


def layer(module: str) -> str | None:
    """The row of the table that a module is under; None if there is none."""
    tree, _, below = module.partition(".")
    if tree in HEAVY or not below:
        return tree
    row = f"{tree}.{below.partition('.')[0]}"
    if row in MAY_IMPORT:
        return row
    stands_alone = tree != "bench" and (tree != "attacks" or "." not in below)
    return tree if stands_alone else None


def violations(root: Path) -> list[str]:
    """Every import that the table does not allow, and every module that no row is about; nothing when all is well."""
    found = [f"{path}: {name} has no row in the table" for name, path in modules(root).items() if layer(name) is None]
    for one in imports(root):
        own, other = layer(one.importer), layer(one.imported)
        if own is None or other is None or own == other or other in MAY_IMPORT[own]:
            continue
        if (one.importer, one.imported) not in EXCEPTIONS:
            found.append(f"{one.line}: {one.importer} imports {one.imported}, and {own} may not import {other}")
    return found


def test_every_import_goes_the_way_the_table_says() -> None:
    assert violations(ROOT) == []


def test_every_row_of_the_table_is_about_something() -> None:
    rows = {layer(name) for name in modules(ROOT)}
    assert set(MAY_IMPORT) == rows
    assert {name for allowed in MAY_IMPORT.values() for name in allowed} <= {*MAY_IMPORT, *HEAVY}


def test_the_table_has_no_way_back() -> None:
    order = list(graphlib.TopologicalSorter(MAY_IMPORT).static_order())
    assert order.index("bench.support") < order.index("bench.store") < order.index("bench.commands")


def test_every_exception_is_needed() -> None:
    assert EXCEPTIONS.keys() <= {(one.importer, one.imported) for one in imports(ROOT)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The tree's modules in a folder of their own."""
    for path in modules(ROOT).values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    return tmp_path


PLANTED = (
    ("attacks/engines/pgd.py", "from bench.store import queries", "bench.store.queries"),
    ("bench/store/queries.py", "def planted():\n    from bench.evaluation.run import Run", "bench.evaluation.run"),
    ("leaderboard/build.py", "if TYPE_CHECKING:\n    from bench import reproduction", "bench.reproduction"),
    ("bench/support/files.py", "from ..models import training", "bench.models.training"),
    ("bench/registry.py", "importlib.import_module('defences.linac')", "defences.linac"),
    ("leaderboard/svg.py", "def planted():\n    import tensorflow as tf", "tensorflow"),
)
"""Forbidden imports: of a plug-in past the contract, in a function, for types, relative, by name, of a heavy library."""


def test_every_forbidden_import_is_named(copy: Path) -> None:
    expected = []
    for path, code, imported in PLANTED:
        own, other = layer(module_name(Path(path))), layer(imported)
        with (copy / path).open("a") as file:
            file.write(code)
        line = len((copy / path).read_text().splitlines())
        expected.append(
            f"{path}:{line}: {module_name(Path(path))} imports {imported}, and {own} may not import {other}"
        )
    assert sorted(violations(copy)) == sorted(expected)


def test_new_modules_and_packages_have_to_be_put_into_the_table(copy: Path) -> None:
    new = ("attacks/new/thing.py", "bench/new.py", "bench/new/thing.py")
    for path in new:
        (copy / path).parent.mkdir(exist_ok=True)
        (copy / path).write_text("")
    expected = [f"{path}: {module_name(Path(path))} has no row in the table" for path in new]
    assert sorted(violations(copy)) == sorted(expected)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list", "defences"], ["list", "attacks"], ["run", "--help"], ["keysearch", "--help"]]
)
@pytest.mark.needs_process
def test_light_commands_do_not_import_tensorflow(arguments: list[str]) -> None:
    code = (
        "import json, sys, atexit\n"
        "atexit.register(lambda: print(json.dumps([m for m in ('tensorflow', 'keras', 'ray') if m in sys.modules]), "
        "file=sys.stderr))\n"
        f"from bench.cli import main; sys.argv = ['bench', *{arguments!r}]; main()"
    )
    done = python(code)
    assert done.returncode == 0
    assert json.loads(done.stderr.splitlines()[-1]) == []


@pytest.mark.needs_process
def test_help_and_list_answer_at_once() -> None:
    """In processor time, which a busy machine does not stretch; on an idle one it is the time a user waits."""
    for arguments in (["--help"], ["list", "defences"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(3):
            assert bench(*arguments, cwd=ROOT).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 3
        assert seconds < 0.7, f"bench {' '.join(arguments)} took {seconds:.2f} s"
