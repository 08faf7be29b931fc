"""The docs say what the code does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bench import registry
from tests.processes import run

ROOT = Path(__file__).parent.parent


@pytest.mark.needs_process
def test_every_command_is_documented_as_its_help_says() -> None:
    made = run([sys.executable, "tools/cli_docs.py"], cwd=ROOT, check=True).stdout
    assert (ROOT / "docs" / "cli.md").read_text() == made, "run: python tools/cli_docs.py > docs/cli.md"


def test_the_readme_names_every_defence_and_engine() -> None:
    readme = (ROOT / "README.md").read_text()
    for kind in ("defences", "attacks"):
        for name, entry in registry.entries(kind).items():
            if entry.package == "bench-keyed-defences" and name not in ("jpeg", "standard", "bpda"):
                assert f"`{name}`" in readme, f"{name} is not in the README"


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_tests_that_the_docs_name_are_there() -> None:
    there = {
        name for file in ROOT.glob("tests/*/test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    named = {name for page in ROOT.glob("docs/*.md") for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 10
    assert named <= there
