"""The packages of examples/, installed by pip as a user would: listed, run, and held to the contract by their own tests."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bench.testing import ContractError
from tests import tiny
from tests.processes import bench, python, run

pytestmark = pytest.mark.needs_process
EXAMPLES = Path(__file__).parents[2] / "examples"
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and os.environ.get("CI") != "true", reason="torch is not installed"
)


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of examples/: its one module, and something in it that, changed, breaks a contract."""

    name: str
    right: str
    wrong: str
    said: str

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


PACKAGES = [
    Package(
        "bench-mirror", "RandomState([key % 2**64 >> 32, key % 2**32])", "RandomState()",
        "defence Mirror gives other numbers when it transforms the same images again: it must give the same bits",
    ),
    Package(
        "bench-momentum", "ball.project(images - step * ball.steepest(velocity), origin, epsilon)",
        "images - step * ball.steepest(velocity)",
        "engine Momentum leaves the linf ball of 0.03 (it goes to 0.06",
    ),
    Package(
        "bench-momentum", "SourceDescription(source,", 'SourceDescription("two-ways",',
        "strategy BothWays describes both-ways as one of kind 'two-ways': its kind must be what its name begins with",
    ),
    Package(
        "bench-convmixer", "return places * (first", "return (first",
        "multiplications are counted in a forward pass over one input: cost must be about as many",
    ),
    Package(
        "bench-torch-defence", "return _last(gradient)", "return _last(_first(upstream))",
        "defence TorchShuffle has gradient = 'exact' and one that is",
    ),
]  # fmt: skip
each_package = pytest.mark.parametrize(
    "package",
    [pytest.param(p, marks=[needs_torch] if "torch" in p.name else [], id=f"{p.name}-{p.said[:8]}") for p in PACKAGES],
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, installed by pip into a folder, without a network."""
    folder = tmp_path_factory.mktemp("examples")
    names = sorted({package.name for package in PACKAGES})
    assert names == sorted(path.parent.name for path in EXAMPLES.glob("*/pyproject.toml"))
    for name in names:  # copies: building a package writes into its folder
        shutil.copytree(
            EXAMPLES / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        )
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*pip, "--target", folder / "site", *(folder / name for name in names)], check=True)
    return folder / "site"


def loaded(name: str, path: Path) -> ModuleType:
    """A module by this name from a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def own_modules() -> Iterator[None]:
    """What a test imports of a package is forgotten after it."""
    yield
    for package in PACKAGES:
        sys.modules.pop(package.module, None)


def run_tests(package: Package, module: Path) -> None:
    """The package's own tests, on this copy of its module."""
    loaded(package.module, module)
    for path in sorted((EXAMPLES / package.name / "tests").glob("test_*.py")):
        tests = loaded(f"{package.module}_{path.stem}", path)
        for name, test in vars(tests).items():
            if name.startswith("test_"):
                test()


@each_package
def test_its_own_tests_pass(package: Package, installed: Path, own_modules: None) -> None:
    if package in [first for first in PACKAGES if first.name == package.name][:1]:
        run_tests(package, installed / f"{package.module}.py")


@each_package
def test_a_broken_copy_fails_with_the_sentence_that_says_why(
    package: Package, tmp_path: Path, own_modules: None
) -> None:
    source = (EXAMPLES / package.name / f"{package.module}.py").read_text()
    assert source.count(package.right) == 1
    (tmp_path / "broken.py").write_text(source.replace(package.right, package.wrong))
    with pytest.raises(ContractError) as caught:
        run_tests(package, tmp_path / "broken.py")
    assert package.said in str(caught.value)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples-world")
    tiny.make(folder)
    preset = tiny.TOML.replace("depth = 10\nwidth = 1", 'network = "convmixer[channels=8,depth=1,patch=4]"')
    (folder / "tiny.toml").write_text(preset)
    return folder


def cells(world: Path, installed: Path, *options: str) -> list[tuple[str, str, str]]:
    """Runs the example's attack on the example's source; the cells of all runs."""
    done = bench("run", *options, "--attack", "momentum[steps=2]@both-ways", "--preset", "tiny.toml", "--dataset",
                 "mine.npz", cwd=world, PYTHONPATH=str(installed), BENCH_HOME=str(world / "home"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(bench("results", "--format", "json", cwd=world).stdout)
    return [
        (cell["defence"].partition("[")[0], cell["attack"], cell["source"])
        for cell in found
        if cell["status"] == "done"
    ]


def test_they_are_listed_and_run_together(installed: Path, world: Path) -> None:
    for kind, line in (
        ("defences", "mirror Mirrors a keyed choice of the image's rows"),
        ("defences", "torch-shuffle A keyed order and keyed signs of the values of every block"),
        ("attacks", "momentum Gradient steps with momentum"),
        ("attacks", "both-ways A plain network that sees the image and its mirror image"),
        ("networks", "convmixer ConvMixer: patches of the image"),
    ):
        listed = bench("list", kind, cwd=world, PYTHONPATH=str(installed)).stdout
        assert line in " ".join(listed.split())
    assert ("mirror", "momentum", "both-ways") in cells(world, installed, "--defence", "mirror[share=0.25]")
    kept = [json.loads(path.read_text()) for path in (world / "home" / "artifacts").glob("*/artifact.json")]
    assert {content["spec"]["recipe"]["network"]["name"] for content in kept} == {"convmixer"}
    refused = bench("run", "--defence", "mirror[share=2]", "--attack", "pgd", cwd=world, PYTHONPATH=str(installed))
    assert (refused.returncode, refused.stderr) == (2, "error: mirror: share is 2.0; it must be between 0 and 1\n")


@needs_torch
def test_the_defence_and_the_classifier_in_pytorch_are_run(installed: Path, world: Path) -> None:
    python(
        "import torch, bench_torch_defence as own; torch.save(own.classifier((32, 32, 3), 10).state_dict(), 'weights.pt')",
        cwd=world, check=True, environment={"PYTHONPATH": str(installed)},
    )  # fmt: skip
    given = ("--classifier", "torch:bench_torch_defence:classifier", "--weights", "weights.pt")
    assert ("torch-shuffle", "momentum", "both-ways") in cells(world, installed, "--defence", "torch-shuffle", *given)
