"""What users see when they get it wrong: one line that says what and what to do, the right exit code, nothing written."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from bench.cli import main


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
            assert parameter.help or parameter.name in ("form",), f"{' '.join(path)} {parameter.name} has no help"


def test_the_commands_of_the_readme_exist() -> None:
    known = {path[0] for path, _ in ALL}
    assert {"run", "train", "list", "show", "results", "leaderboard", "verify", "data", "db"} <= known


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
        ([*RUN, "--defence", "none", "--examples", "0"], "0 examples make no board"),
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
        (["train", "--defence", "none", "--preset", "paper"], "bench data fetch"),
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
    np.savez(in_a_folder / "other.npz", **{"weight:x": np.zeros(3)})
    before = set(in_a_folder.iterdir())
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 2, shown.output
    assert said in shown.output
    assert "Traceback" not in shown.output
    if shown.output.startswith("error:"):
        assert shown.output.count("\n") == 1
    left = {path.name for path in set(in_a_folder.iterdir()) - before}
    assert left <= {"results"}, "nothing half-written"


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
