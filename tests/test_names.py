"""One name, one thing: no two classes of the project are called the same."""

from __future__ import annotations

import ast
import collections
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("attacks", "bench", "benchmarks", "defences", "leaderboard", "tools")


def test_no_class_name_stands_for_two_things() -> None:
    places = collections.defaultdict(list)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
