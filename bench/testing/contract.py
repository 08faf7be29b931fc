"""What is raised when a plug-in breaks its contract, and how its code is called while it is checked."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec

Arguments = ParamSpec("Arguments")
LONGEST = 300  # characters of somebody else's error


class ContractError(AssertionError):
    """A plug-in that breaks its contract: one sentence that names it, what it did, and what it must do."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A plug-in that is being checked, as sentences name it: `defence Mirror`."""

    name: str

    def require(self, holds: bool, sentence: str) -> None:
        """Raises ContractError with the plug-in's name and the rest of the sentence, unless it holds."""
        if not holds:
            raise ContractError(f"{self.name} {sentence}")

    @contextlib.contextmanager
    def must(self, task: str) -> Iterator[None]:
        """Code of the plug-in that must be able to do a task: an exception breaks the contract, and is its cause."""
        try:
            yield
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(
                f"{self.name} must {task}, and fails with {type(error).__name__}: {_line(error)}"
            ) from error


def checks(function: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Ends the traceback of a broken contract at the call of the check; its cause, an error of the plug-in, stays."""

    @functools.wraps(function)
    def checked(*arguments: Arguments.args, **options: Arguments.kwargs) -> None:
        __tracebackhide__ = True  # pytest shows the line of the test, and the sentence
        try:
            function(*arguments, **options)
        except ContractError as error:
            raise error.with_traceback(None) from error.__cause__

    return checked


def _line(error: Exception) -> str:
    """One line of an error's text; of what TensorFlow adds where it compiles code, the last one says what was wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(nothing said)"]
    return lines[-1 if lines[0] == "in user code:" else 0][:LONGEST]
