"""Processes that do not behave: they hold the interpreter's lock, fork, stop, die. The driver goes on, and none is left."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.api import Attacked
from bench.executors import child, codec, local
from bench.executors.base import AttackTask, Limits, Outcome
from bench.executors.channel import Channel
from bench.executors.child import spawn_child
from bench.executors.local import LocalPool
from bench.executors.messages import TaskFinished
from bench.executors.pool import PoolExecutor
from tests.processes import started

pytestmark = pytest.mark.needs_process

SHAPE = (100, 32, 32, 3)  # more than a socket takes at once
NONE = np.zeros(SHAPE[0], np.int64)
FINISHED = codec.encoded(
    TaskFinished(Attacked(np.zeros(SHAPE, np.float32), NONE == 1, NONE * 0.5, NONE, NONE, NONE, NONE), 1.0)
)


def hold_the_lock(channel: Channel, pids: str) -> None:
    """A call into C that keeps the lock: no other thread of this process runs until it is over."""
    ctypes.PyDLL(None).sleep(10_000)


def fork_ten_times_ten(channel: Channel, pids: str) -> None:
    for _ in range(10):
        if os.fork() == 0:
            for _ in range(10):
                if os.fork() == 0:
                    break
            note(pids)
            time.sleep(100)
            os._exit(0)
    time.sleep(10_000)


def die_and_leave_children(channel: Channel, pids: str) -> None:
    """What it has forked keeps its end of the channel open."""
    if os.fork() == 0:
        note(pids)
        time.sleep(100)
    while len(Path(pids).read_text().split()) % 2:
        time.sleep(0.01)
    os._exit(7)


def stop(channel: Channel, pids: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_in_the_middle(channel: Channel, pids: str) -> None:
    """In half a message, as one that is stopped from outside may be."""
    channel._socket.sendall(b"bch1\0\0")
    os.kill(os.getpid(), signal.SIGSTOP)


def close_and_go_on(channel: Channel, pids: str) -> None:
    channel.close()
    time.sleep(10_000)


ACTIONS: dict[str, Callable[[Channel, str], None]] = {
    action.__name__: action
    for action in (
        hold_the_lock,
        fork_ten_times_ten,
        die_and_leave_children,
        stop,
        stop_in_the_middle,
        close_and_go_on,
    )
}


def note(pids: str) -> None:
    """Writes this process down, in one piece."""
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\n")


def misbehave(channel: Channel, threads: int, memory: int | None) -> None:
    """A worker that does to some tasks what their engines are called."""
    while (frame := channel.receive()) is not None:
        task = codec.task_of(frame)
        channel.send({"kind": "ready"})
        if task.engine in ACTIONS:
            note(task.source)
            ACTIONS[task.engine](channel, task.source)
        channel.send(FINISHED.document, FINISHED.arrays)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Outcome]]:
    """Has tasks worked on by such workers; says what the user would see to `said`."""
    monkeypatch.setattr(local, "serve", misbehave)

    def outcomes(*engines: str, said: list[str], seconds: float | None = None) -> list[Outcome]:
        setup: Any = SimpleNamespace(weights=Path("w"))
        batch: Any = SimpleNamespace(images=np.zeros(SHAPE, np.float32))
        tasks = iter([
            AttackTask(index, setup, engine, {}, str(tmp_path / "pids"), "s", batch) for index, engine in enumerate(engines)
        ])  # fmt: skip
        limits = Limits(seconds=seconds)
        executor = PoolExecutor("local", LocalPool(limits), limits, said.append)
        try:
            return [one for one in executor.run(lambda: next(tasks, None), lambda *_: None) if one is not None]
        finally:
            executor.close()

    return outcomes


def noted(tmp_path: Path) -> list[int]:
    """The processes that were written down."""
    return [int(line) for line in (tmp_path / "pids").read_text().split()]


def lives(pid: int) -> bool:
    """Whether there is such a process, and it is not dead and only not yet counted off."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(*pids: int) -> bool:
    deadline = time.monotonic() + 30
    while any(map(lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(lives, pids))


LATE = "the attack took longer than the 1 s of --time-limit"


@pytest.mark.parametrize("action", ["hold_the_lock", "fork_ten_times_ten", "stop", "stop_in_the_middle"])
def test_a_limit_of_time_is_kept_from_outside(action: str, run: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    """The next task, sent ahead, is more than the socket takes from one that does not read: the driver does not wait."""
    found = run(action, "fine", "fine", said=[], seconds=1)
    assert sorted((one.index, one.error) for one in found) == [(0, LATE), (1, None), (2, None)]
    assert len(noted(tmp_path)) > (action == "fork_ten_times_ten")
    assert gone(*noted(tmp_path))


def test_what_a_dead_process_has_forked_hides_nothing_and_is_ended(
    run: Callable[..., list[Outcome]], tmp_path: Path
) -> None:
    said: list[str] = []
    found = run("die_and_leave_children", "fine", said=said)
    assert {one.index: one.error for one in found} == {
        0: "the attack's process died 2 times (exit code 7): out of memory?",
        1: None,
    }
    assert said == ["the attack's process died (exit code 7); trying that shard once more"]
    assert gone(*noted(tmp_path))


def test_a_process_that_closes_its_connection_is_ended(
    run: Callable[..., list[Outcome]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "SECONDS_TO_DIE", 0.2)
    found = run("close_and_go_on", "fine", said=[])
    assert {one.index: one.error for one in found} == {
        0: "the attack's process died 2 times (it closed its connection): out of memory?",
        1: None,
    }
    assert gone(*noted(tmp_path))


def test_the_user_is_told_of_a_stopped_process_and_it_can_go_on(
    run: Callable[..., list[Outcome]], tmp_path: Path
) -> None:
    class Said(list[str]):
        """Does what the line says."""

        def append(self, line: str) -> None:
            super().append(line)
            os.kill(noted(tmp_path)[0], signal.SIGCONT)

    said = Said()
    found = run("stop", said=said)
    assert [one.error for one in found] == [None]
    pid = noted(tmp_path)[0]
    assert said == [
        f"the attack's process {pid} is stopped by a signal: 'kill -CONT {pid}' lets it go on; --time-limit would end it"
    ]


DRIVER = """
import sys, time
from tests.bench import test_processes_of_attacks as here
child = here.spawn_child(here.say_so_and_hold, "held")
child.receive()
print(child.pid, flush=True)
time.sleep(1000)
"""


def say_so_and_hold(channel: Channel) -> None:
    channel.send({})
    hold_the_lock(channel, "")


def test_a_process_that_holds_its_lock_does_not_outlive_a_killed_driver() -> None:
    with started([sys.executable, "-c", DRIVER], Path(__file__).parents[2]) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        assert lives(pid)
        driver.send_signal(signal.SIGKILL)
        driver.wait(30)
        assert gone(pid)


def echo(channel: Channel) -> None:
    while (frame := channel.receive()) is not None:
        channel.send(frame.document)


def test_a_process_lives_on_when_the_thread_that_asked_for_it_has_ended() -> None:
    """The kernel's signal of a parent's death is that of the thread which started the process."""
    made: list[child.Child] = []

    def ask() -> None:
        made.append(spawn_child(echo, "echo"))
        made[0].channel.send_later({"is it": "up"})
        made[0].receive()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    time.sleep(0.3)
    made[0].channel.send_later({"still": "there"})
    assert made[0].receive().document == {"still": "there"}
    made[0].kill()
    assert gone(made[0].pid)
