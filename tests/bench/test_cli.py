"""What users see when they get it wrong: one line that says what and what to do, the right exit code, nothing written."""

from __future__ import annotations

import dataclasses
import pkgutil
import shlex
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import bench.commands
from bench import spec
from bench.cli import main
from bench.commands.options import bundled, command_line
from tests.processes import python


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    for name, command in group.commands.items():
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [((*path, name), command)]
    return found


ALL = commands(main)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    shown = CliRunner().invoke(main, [*path, "--help"])
    assert shown.exit_code == 0
    assert len(command.help or "") > 20
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.name} has no help"


def test_every_command_has_a_module_of_its_name() -> None:
    modules = {found.name for found in pkgutil.iter_modules(bench.commands.__path__)} - {"options"}
    assert {name.strip("_").replace("_", "-") for name in modules} == set(main.commands)


@pytest.mark.needs_process
def test_help_needs_none_of_the_large_libraries() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from bench.cli import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(main, ['run', '--help']).exit_code == 0\n"
        "print([m for m in ('numpy', 'pandas', 'rich', 'sqlalchemy', 'tensorflow') if m in sys.modules])"
    )
    done = python(code)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_commands_of_the_readme_exist() -> None:
    known = {path[0] for path, _ in ALL}
    assert {"run", "train", "list", "show", "results", "leaderboard", "verify", "data", "db"} <= known


def test_a_command_is_stored_as_it_can_be_typed_again() -> None:
    typed = ["run", "--defence", "jpeg[quality=50]", "--db", "my results.db", "--attack", "pgd@nominal"]
    with click.Context(main, obj=tuple(typed)):
        assert shlex.split(command_line()) == ["bench", *typed]


def test_options_of_one_kind_reach_a_command_as_one_value() -> None:
    @dataclasses.dataclass(frozen=True)
    class Size:
        """How large."""

        width: int
        height: int = 7

    seen: list[tuple[Size, str]] = []

    @click.command()
    @bundled(Size, "size", click.option("--width", type=int, default=3))
    @click.option("--name", default="")
    def command(size: Size, name: str) -> None:
        seen.append((size, name))

    assert CliRunner().invoke(command, ["--width", "5", "--name", "x"]).exit_code == 0
    assert CliRunner().invoke(command, []).exit_code == 0
    assert seen == [(Size(5), "x"), (Size(3), "")]
    assert [parameter.name for parameter in command.params] == ["width", "name"]


RUN = ["run", "--attack", "pgd", "--preset", "smoke"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--attack", "pgd"], "Missing option '--defence'"),
        ([*RUN, "--defence", "linca"], "unknown defence 'linca': did you mean 'linac'"),
        ([*RUN, "--defence", "jpeg[quality=500]"], "quality is 500; it must be between 1 and 100"),
        ([*RUN, "--defence", "jpeg[quality=good]"], "it must be of type int"),
        ([*RUN, "--defence", "none", "--attack", "gpd"], "unknown attack 'gpd': did you mean 'pgd'"),
        ([*RUN, "--defence", "none", "--norm", "l1"], "unknown norm 'l1'"),
        (
            [*RUN, "--defence", "none", "--norm", "linf", "--epsilon", "0"],
            "epsilon is '0'; it must be a number above 0",
        ),
        ([*RUN, "--defence", "none", "--norm", "linf", "--epsilon", "-1/255"], "must be a number above 0"),
        ([*RUN, "--defence", "none", "--norm", "linf", "--epsilon", "8/0"], "must be a number above 0"),
        ([*RUN, "--defence", "none", "--norm", "linf", "--epsilon", "nan"], "must be a number above 0"),
        ([*RUN, "--defence", "none", "--epsilon", "0.1"], "--epsilon belongs to one norm"),
        ([*RUN, "--defence", "none", "--examples", "0"], "examples is 0; it must be at least 1"),
        ([*RUN, "--defence", "none", "--examples", "100000"], "but cifar10 has 500 test images here"),
        ([*RUN, "--defence", "none", "--preset", "labtop"], "unknown preset 'labtop': did you mean 'laptop'"),
        ([*RUN, "--defence", "none", "--dataset", "gone.npz"], "dataset gone.npz does not exist"),
        ([*RUN, "--defence", "none", "--weights", "gone.npz"], "weights file gone.npz does not exist"),
        ([*RUN, "--defence", "none", "--weights", "text.npz"], "text.npz is not a weights file"),
        ([*RUN, "--defence", "none", "--weights", "other.npz"], "other.npz is of another architecture"),
        ([*RUN, "--defence", "none", "--db", "nowhere://x"], "--db nowhere://x"),
        ([*RUN, "--defence", "none", "--key-file", "gone.key"], "cannot read key file gone.key"),
        ([*RUN, "--defence", "block-shuffle", "--attack", "pgd@self"], "outside the threat model of block-shuffle"),
        ([*RUN, "--defence", "block-shuffle[mode=values]", "--no-train"], "bench train --defence"),
        ([*RUN, "--defence", "none", "--defence", "jpeg-10", "--weights", "text.npz"], "give exactly one --defence"),
        ([*RUN, "--defence", "none", "--source", "gone.keras"], "--source gone.keras does not exist"),
        ([*RUN, "--defence", "none", "--executor", "lcoal"], "unknown executor 'lcoal': did you mean 'local'"),
        ([*RUN, "--defence", "none", "--ray-address", "auto"], "belong to --executor ray"),
        ([*RUN, "--defence", "none", "--memory-limit", "much"], "'much' is no amount of memory"),
        ([*RUN, "--defence", "none", "--shard-size", "0"], "0 is not in the range x>=1"),
        (["plan", "--defence", "none", "--attack", "gpd"], "unknown attack 'gpd': did you mean 'pgd'"),
        (["plan", "--defence", "none", "--db", "nowhere://x", "--preset", "smoke"], "--db nowhere://x"),
        (["keysearch", "--defence", "linac"], "no guesses asked for: give --meta-seeds 0..99"),
        (["keysearch", "--defence", "linac", "--meta-seeds", "0-9"], "--meta-seeds is '0-9'; give FIRST..LAST"),
        (["keysearch", "--defence", "linac", "--random", "1", "--save", "text.npz"], "a key file is never overwritten"),
        (["keysearch", "--defence", "none", "--random", "1"], "none has no key to search for"),
        (["reproduce", "tabel3"], "the paper has no 'tabel3' to reproduce: did you mean 'table3'"),
        (["reproduce", "table3", "--examples", "100000"], "but cifar10 has 500 test images here"),
        (["train", "--defence", "none", "--preset", "paper"], "bench data fetch"),
        (["serve"], "there is no leaderboard in results/leaderboard"),
        (["export", "out.zip"], "there is no database at results/bench.db"),
        (["db", "info"], "there is no database at results/bench.db"),
        (["key", "new", "text.npz"], "text.npz"),
        (["show", "lniac"], "nothing is called 'lniac': did you mean 'linac'"),
        (["results"], "there is no database at results/bench.db"),
        (["leaderboard", "--db", "gone.db"], "there is no database at gone.db"),
        (["verify"], "there is no database at"),
        (["data", "fetch", "--from", "gone"], "--from gone: no such file or folder"),
        (["list", "defence"], "is not one of"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(in_a_folder: Path, arguments: list[str], said: str) -> None:
    (in_a_folder / "text.npz").write_text("no weights")
    np.savez(in_a_folder / "other.npz", **{"weight:x": np.zeros(3)})  # type: ignore[arg-type]
    before = set(in_a_folder.iterdir())
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 2, shown.output
    assert said in shown.output
    assert "Traceback" not in shown.output
    if shown.output.startswith("error:"):
        assert shown.output.count("\n") == 1
    left = {path.name for path in set(in_a_folder.iterdir()) - before}
    assert left <= {"results"}, "nothing half-written"


@pytest.mark.parametrize("debug", [False, True])
def test_what_nobody_expected_is_one_line_too_unless_it_is_to_be_found(
    debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[str]:
        raise ValueError("two\nlines")

    monkeypatch.setattr(spec, "preset_names", fail)
    done = CliRunner().invoke(main, [*(["--debug"] if debug else []), "list", "presets"])
    assert done.exit_code == 1
    if debug:
        assert "Traceback" in done.output
        assert "in fail" in done.output
    else:
        assert done.output == "error: ValueError: two lines (unexpected: 'bench --debug …' shows where)\n"


def test_bad_usage_is_shown_where_it_happened_with_the_same_exit_code() -> None:
    done = CliRunner().invoke(main, ["--debug", "show", "lniac"])
    assert done.exit_code == 2
    assert "Traceback" in done.output
    assert done.output.rstrip().endswith("nothing is called 'lniac': did you mean 'linac'?")


def test_a_database_that_is_none_fails_with_1(in_a_folder: Path) -> None:
    (in_a_folder / "bad.db").write_text("no database " * 100)
    shown = CliRunner().invoke(main, ["results", "--db", "bad.db"])
    assert shown.exit_code == 1
    assert (
        shown.output
        == "error: database bad.db: file is not a database; this file is no SQLite database: choose another with --db\n"
    )


def test_a_read_only_database_is_read_but_not_written(in_a_folder: Path) -> None:
    from bench.store.database import open_database

    open_database("ours.db", create=True).dispose()
    assert CliRunner().invoke(main, ["results", "--db", "ours.db"]).exit_code == 0
    assert CliRunner().invoke(main, ["db", "info", "--db", "ours.db"]).output.startswith("ours.db: schema")
