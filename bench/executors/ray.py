"""Workers on a Ray cluster: actors that hold their models. What is done is in the store; Ray keeps nothing of value."""

from __future__ import annotations

import atexit
import collections
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.api import BenchError, UsageError
from bench.executors.pool import Crew, Limits, Message, Worker
from bench.executors.serving import attend, limit_memory
from bench.executors.worker import Attacker, Task
from bench.support.cache import home

PATIENCE = 120.0  # seconds without a word from any worker, at the start, until the cluster's size is questioned
MOMENT = 2.0  # seconds: where a whole cluster ends, its head may outlive a worker by so much
# Settings a node takes over from the driver, unless it has its own; never the key
HANDED_ON = ("BENCH_ARTIFACTS", "TF_ENABLE_ONEDNN_OPTS")


class WorkerActor:
    """The actor: an attacker in a process that never had the key."""

    def __init__(self, settings: dict[str, str], folder: str, threads: int, memory: int | None) -> None:
        if "BENCH_KEY" in os.environ:
            raise BenchError("this Ray node was started with BENCH_KEY in its environment: start it without the key")
        for name, value in settings.items():
            os.environ.setdefault(name, value)
        if Path(folder).is_dir():
            os.chdir(folder)  # so that relative paths of the command line mean the same here
        limit_memory(memory)
        from bench.support import devices

        devices.configure(threads)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._attacker = Attacker(lambda text: self._messages.put(("say", text)))

    def attack(self, task: Task) -> Iterator[Message]:
        """What happens to a task, message by message; the last one is `done` or `failed`."""
        threading.Thread(target=attend, args=(self._attacker, task, self._messages.put), daemon=True).start()
        while True:
            message = self._messages.get()
            yield message
            if message[0] in ("done", "failed"):
                return

    def surroundings(self) -> tuple[int, str, dict[str, str]]:
        """Process number, node and environment: for tests of what a worker can see."""
        import ray

        return os.getpid(), ray.get_runtime_context().get_node_id(), dict(os.environ)


class RayWorker(Worker):
    """An actor, and the streams of messages about the tasks it has, the current one first."""

    def __init__(self, actor: Any, crew: RayCrew) -> None:
        self.actor, self._crew = actor, crew
        self.streams: collections.deque[Any] = collections.deque()

    def send(self, task: Task) -> None:
        self.streams.append(self.actor.attack.options(num_returns="streaming").remote(task))

    def hear(self) -> Message:
        import ray

        try:
            message = ray.get(next(self.streams[0]))
        except StopIteration:
            return ("lost", "its answer broke off")
        except ray.exceptions.RayError as error:
            return ("lost", " ".join(str(error).split())[:300])
        if message[0] in ("done", "failed"):
            self.streams.popleft()
        return message

    def end(self) -> None:
        import ray

        if not self._crew.gone:
            ray.kill(self.actor, no_restart=True)


class RayCrew(Crew):
    """Actors on a cluster that is there already (`address`), or on one of its own on this machine."""

    name = "ray"
    one_builds_first = True

    def __init__(self, limits: Limits, address: str | None, gpus: float) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("--executor ray needs Ray: pip install 'bench-keyed-defences[ray]'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        _knock(address)
        options: dict[str, Any] = {"address": address} if address else {"num_cpus": limits.workers}
        handler = signal.getsignal(signal.SIGTERM)  # Ray puts its own there
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _no_answer(address, error) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        self._memory, self._gpus = limits.memory, gpus
        self._head = str(ray.get_runtime_context().gcs_address)
        self.gone = self._heard = False
        self._began = time.monotonic()

    def hire(self) -> RayWorker:
        import ray

        # A lost actor is replaced by the pool, which counts attempts by shard; Ray itself shall try nothing again.
        remote = ray.remote(num_cpus=1, num_gpus=self._gpus, max_restarts=0, max_task_retries=0)(WorkerActor)
        settings = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        settings["BENCH_HOME"] = str(home().absolute())
        return RayWorker(remote.remote(settings, os.getcwd(), 1, self._memory), self)

    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        import ray

        streams = {w.streams[0]: w for w in workers if isinstance(w, RayWorker) and w.streams}
        if not streams:
            time.sleep(seconds)
            return []
        try:
            ready, _ = ray.wait(list(streams), num_returns=1, timeout=seconds)
            self._complain(bool(ready))
            heard: list[tuple[Worker, Message]] = [(streams[stream], streams[stream].hear()) for stream in ready]
            if any(message[0] == "lost" for _, message in heard):
                time.sleep(MOMENT)
                _knock(self._head)  # a lost worker costs its shard an attempt, a lost cluster nothing
            return heard
        except (ray.exceptions.RayError, ConnectionError, UsageError) as error:
            self.gone = True
            raise BenchError("the Ray cluster is gone: start it, then run the same command again") from error

    def _complain(self, heard: bool) -> None:
        """A cluster too small for a worker, for as long as an autoscaler may take, is an error; a busy one is waited for."""
        import ray

        self._heard = self._heard or heard
        if self._heard or time.monotonic() - self._began < PATIENCE:
            return
        there = ray.cluster_resources()
        if there.get("CPU", 0) < 1 or there.get("GPU", 0) < self._gpus:
            raise BenchError(
                f"the Ray cluster has {there.get('CPU', 0):g} CPU and {there.get('GPU', 0):g} GPU in all: "
                f"a worker needs 1 CPU and {self._gpus:g} GPU"
            )

    def close(self) -> None:
        import ray

        if self.gone:
            atexit.register(os._exit, 1)  # before Ray's own end, which tries to reach the cluster for a minute
        else:
            ray.shutdown()


def _knock(address: str | None) -> None:
    """Refuses an address where nobody listens at once; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise _no_answer(address, error) from error


def _no_answer(address: str | None, error: Exception) -> BenchError:
    reason = " ".join(str(error).split())[:300]
    if address is None:
        return BenchError(f"Ray does not start on this machine ({reason}): --executor local does without it")
    return UsageError(f"--ray-address {address}: no Ray cluster answers there ({reason})")
