"""An evaluation as a request: refused before anything is written, and its run ended whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import spec
from bench.api import UsageError
from bench.evaluation import session
from bench.evaluation.session import Request
from bench.models.brought import Given
from tests import vaults

SMOKE = spec.resolve("smoke", examples=2, norms=("linf",))


def request(**changes: Any) -> Request:
    given: dict[str, Any] = {
        "spec": SMOKE,
        "defences": ("none",),
        "attacks": ("pgd@nominal",),
        "vault": vaults.published(),
    }
    return Request(**{**given, **changes})


def test_a_plan_has_every_defence_once_in_the_order_asked_for() -> None:
    plans = session.planned(request(defences=("jpeg-23", "none", "jpeg-23")))
    assert [one.defence for one in plans] == ["jpeg-23", "none"]
    assert [pair.name for one in plans for pair in one.pairs] == ["pgd@nominal"] * 2


def test_all_defences_are_those_that_say_so() -> None:
    chosen = session.chosen_defences(["all"])
    assert "linac" in chosen
    assert "jpeg" not in chosen, "its quality is for the user to choose"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"defences": ("none", "linac"), "weights": Path("w.npz")}, "--weights belongs to one defence"),
        ({"own_models": ("gone.keras",)}, "--source gone.keras does not exist"),
        ({"attacks": ("pgd@guessed-key",), "defences": ("linac",)}, "--key-guess"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        session.planned(request(**changes))


def test_a_users_models_are_sources_by_the_names_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "mine.keras").touch()
    wanted = request(own_models=(str(tmp_path / "mine.keras"),), attacks=("pgd@user:mine",))
    assert wanted.own_sources == {"user:mine": Given(str(tmp_path / "mine.keras"), option="--source")}
    assert [pair.source for pair in session.planned(wanted)[0].pairs] == ["user:mine"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.keras").touch()
    with pytest.raises(UsageError, match="have the same name"):
        session.planned(request(own_models=(str(tmp_path / "mine.keras"), str(tmp_path / "other" / "mine.keras"))))


def test_more_examples_than_there_are_are_refused() -> None:
    with pytest.raises(UsageError, match="500 test images here"):
        session.require_examples(spec.resolve("smoke", examples=501))


class NotedRun:
    """Stands for a run, and notes what is done with it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.seen.append(name)


def test_a_run_that_fails_is_closed_and_not_finished() -> None:
    run: Any = NotedRun()
    with session.recorded(run, SMOKE):
        pass
    assert run.seen == ["start", "finish", "close"]
    run = NotedRun()
    with pytest.raises(KeyboardInterrupt), session.recorded(run, SMOKE):
        raise KeyboardInterrupt
    assert run.seen == ["start", "close"]
