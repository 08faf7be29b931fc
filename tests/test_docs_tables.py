"""Tables of the docs against the code: everything that is there is documented, and nothing that is not."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
from pathlib import Path

from bench import spec
from bench.models.adversary import Adversary
from bench.models.recipe import FLAT_SETTINGS, Recipe
from bench.reproduction.contents import Sizes
from bench.reproduction.sizes import RECIPES
from bench.spec import Spec

ROOT = Path(__file__).parent.parent


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, cell by cell."""
    text = f"\n{(ROOT / 'docs' / page).read_text()}".split(f"\n{heading}\n", 1)[1]
    lines = re.split(r"\n#+ ", text)[0].splitlines()
    return [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines if line.startswith("| ")][2:]


def names(cell: str) -> set[str]:
    """What a cell names: `norms`, `[recipes.NAME]` gives recipes."""
    return {quoted.strip("[]").partition(".")[0] for quoted in re.findall(r"`([^`]+)`", cell)}


def named(page: str, heading: str) -> set[str]:
    """Everything that the first column of a table names."""
    return {name for row in rows(page, heading) for name in names(row[0])}


def fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_entry_point_group_is_documented() -> None:
    source = "".join(path.read_text() for path in (ROOT / "bench").rglob("*.py"))
    read = {*re.findall(r'\bGroup(?:\[\w+\])?\(\s*"(\w+)"', source), *re.findall(r'\bgroup="bench\.(\w+)"', source)}
    registered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {f"bench.{name}" for name in read} == set(registered)
    documented = {quoted for row in rows("plugins.md", "# Plug-ins") for quoted in re.findall(r"`([^`]+)`", row[0])}
    assert documented == set(registered)


def public_names(path: Path) -> set[str]:
    """What a module defines or hands on (`import name as name`) under a public name."""
    found: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return {name for name in found if not name.startswith("_")}


def test_every_public_name_of_the_contract_is_documented() -> None:
    assert named("plugins.md", "## What a plug-in may import") == public_names(ROOT / "bench" / "api.py")


def test_every_public_name_of_the_kit_is_documented() -> None:
    (public,) = re.findall(r"^__all__ = (.*)", (ROOT / "bench" / "testing" / "__init__.py").read_text(), re.MULTILINE)
    assert named("plugins.md", "## Testing it") == set(ast.literal_eval(public))


def test_every_field_of_a_preset_is_documented() -> None:
    assert named("presets.md", "## Fields") == fields(Spec) - {"preset"} | {"description"}
    for path in spec.PRESETS.glob("*.toml"):
        assert tomllib.loads(path.read_text()).keys() <= named("presets.md", "## Fields")


def test_every_field_of_a_recipe_is_documented() -> None:
    assert named("presets.md", "## Fields of `[training]`") == fields(Recipe) | set(FLAT_SETTINGS)
    (adversary,) = [row for row in rows("presets.md", "## Fields of `[training]`") if names(row[0]) == {"adversary"}]
    assert names(adversary[1]) == fields(Adversary)


def test_every_field_of_a_reproduction_is_documented() -> None:
    assert named("presets.md", "## Fields of `[reproduce]`") == fields(Sizes) | {RECIPES}


def test_the_presets_that_ship_are_documented() -> None:
    assert named("presets.md", "# Presets") == set(spec.preset_names())
