"""The suite may fail, but never hang: every test has a limit, every wait too, and children can be interrupted."""

from __future__ import annotations

import ast
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.processes import run, started

ROOT = Path(__file__).parent.parent


def outcome_of(code: str, folder: Path, *options: str) -> tuple[int, str]:
    """Runs a file of tests by the project's settings; gives the exit code and what was said."""
    (folder / "test_made.py").write_text(code)
    command = (sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider")
    done = run([*command, *options, folder / "test_made.py"], cwd=folder, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.needs_process
def test_a_test_that_hangs_is_ended_by_its_limit_and_the_next_one_runs(tmp_path: Path) -> None:
    code = "import time\ndef test_hangs(): time.sleep(10**6)\ndef test_next(): pass\n"
    status, said = outcome_of(code, tmp_path, "-o", "timeout=1")
    assert status == 1
    assert "Timeout (>1.0s)" in said
    assert "1 failed, 1 passed" in said


@pytest.mark.needs_process
def test_a_test_that_hangs_below_python_ends_the_process(tmp_path: Path) -> None:
    """A signal is only seen between two steps of Python code, and a C function that keeps the lock lets none happen."""
    code = "def test_hangs(): sum(range(10**15))\n"
    status, said = outcome_of(code, tmp_path, "-o", "timeout=1", "-o", "faulthandler_timeout=2")
    assert status == 1
    assert "Timeout (0:00:02)!" in said
    assert "test_hangs" in said


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    limit, hard = float(pytestconfig.getini("timeout")), float(pytestconfig.getini("faulthandler_timeout"))
    assert 0 < limit < hard
    assert pytestconfig.getini("faulthandler_exit_on_timeout")


WAIT = "import time; print('up', flush=True); time.sleep(10**6)"


@pytest.mark.needs_process
def test_a_child_can_be_interrupted() -> None:
    with started([sys.executable, "-c", WAIT]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT


@pytest.mark.needs_process
def test_a_child_can_be_interrupted_where_the_tests_were_started_with_sigint_ignored() -> None:
    """As background jobs, and many CI systems, start them."""
    test = f"{__file__}::test_a_child_can_be_interrupted"
    script = 'trap "" INT; exec "$@"'
    done = run(["bash", "-c", script, "bash", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test], cwd=ROOT)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.needs_process
def test_what_a_child_started_ends_with_the_test(tmp_path: Path) -> None:
    code = (
        f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {WAIT!r}]); "
        "print(child.pid, flush=True); child.wait()"
    )
    with started([sys.executable, "-c", code]) as process:
        assert process.stdout is not None
        grandchild = Path(f"/proc/{process.stdout.readline().strip()}")
        assert grandchild.exists()
    deadline = time.monotonic() + 30
    while grandchild.exists() and time.monotonic() < deadline and "\nState:\tZ" not in status_of(grandchild):
        time.sleep(0.05)
    assert "\nState:\tZ" in status_of(grandchild) or not grandchild.exists()


def status_of(process: Path) -> str:
    try:
        return (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def endless(path: Path) -> list[str]:
    """The lines of a file that wait for a process without a limit, or start one where no limit is set."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, arguments = node.func.attr, [*node.args, *node.keywords]
            waits = name in ("wait", "join", "communicate") and not arguments
            runs = ast.unparse(node.func) in ("subprocess.run", "subprocess.check_output", "subprocess.check_call")
            if waits or (runs and not any(keyword.arg == "timeout" for keyword in node.keywords)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}")
    return found


def test_no_test_waits_for_ever() -> None:
    assert not [line for path in (ROOT / "tests").rglob("*.py") for line in endless(path)]
