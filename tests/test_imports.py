"""Who may import what, and what the light commands may pull in."""

from __future__ import annotations

import ast
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {"bench", "defences", "attacks", "leaderboard"}


def imported(path: Path) -> set[str]:
    """The project's own modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in ROOMS}


def allowed(name: str, *prefixes: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("room", ["defences", "attacks"])
def test_plugins_import_only_the_contract_and_their_own_package(room: str) -> None:
    for path in (ROOT / room).glob("*.py"):
        for name in imported(path):
            assert allowed(name, "bench.api", room) or name == "bench", f"{path.name} imports {name}"


def test_the_leaderboard_reads_the_store_alone() -> None:
    for path in [*(ROOT / "leaderboard").glob("*.py"), *(ROOT / "leaderboard" / "reproduced").glob("*.py")]:
        for name in imported(path):
            assert allowed(name, "bench.store", "bench.support.stats", "bench.support", "leaderboard"), (
                f"{path.name} imports {name}"
            )
            assert not allowed(name, "bench.reproduction.gallery"), f"{path.name} imports {name}"


def test_the_store_knows_no_plugin() -> None:
    for path in (ROOT / "bench" / "store").rglob("*.py"):
        for name in imported(path):
            assert allowed(name, "bench.store", "bench.api", "bench.support.stats"), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list", "defences"], ["list", "attacks"], ["run", "--help"], ["keysearch", "--help"]]
)
def test_light_commands_do_not_import_tensorflow(arguments: list[str]) -> None:
    code = (
        "import json, sys, atexit\n"
        "atexit.register(lambda: print(json.dumps([m for m in ('tensorflow', 'keras', 'ray') if m in sys.modules]), "
        "file=sys.stderr))\n"
        f"from bench.cli import main; sys.argv = ['bench', *{arguments!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert json.loads(done.stderr.splitlines()[-1]) == []


def test_help_and_list_answer_at_once() -> None:
    """In processor time, which a busy machine does not stretch; on an idle one it is the time a user waits."""
    for arguments in (["--help"], ["list", "defences"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(3):
            subprocess.run([sys.executable, "-m", "bench.cli", *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 3
        assert seconds < 0.7, f"bench {' '.join(arguments)} took {seconds:.2f} s"
