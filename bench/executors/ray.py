"""Workers on a Ray cluster: actors that hold their models. What is done is in the store; Ray keeps nothing of value."""

from __future__ import annotations

import atexit
import collections
import dataclasses
import logging
import math
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
from bench.executors.base import AttackTask, Executor, ExecutorPlugin, Limits, Say
from bench.executors.messages import LAST_OF_A_TASK, Message, Notice, WorkerLost
from bench.executors.pool import PoolExecutor, Worker, WorkerPool
from bench.executors.serving import limit_memory, work_on
from bench.executors.worker import Attacker
from bench.support.cache import home

SECONDS_TO_SCALE = 120.0  # without a message from any worker, at the start, until the cluster's size is checked
SECONDS_OF_THE_HEAD = 2.0  # by which the head may outlive a worker where a whole cluster ends
# Settings that a node takes from the driver, unless it has its own; never the key
FORWARDED = ("BENCH_ARTIFACTS", "TF_ENABLE_ONEDNN_OPTS")


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
        self._attacker = Attacker(lambda text: self._messages.put(Notice(text)))

    def attack(self, task: AttackTask) -> Iterator[Message]:
        """What happens to a task, message by message."""
        threading.Thread(target=work_on, args=(self._attacker, task, self._messages.put), daemon=True).start()
        while True:
            message = self._messages.get()
            yield message
            if isinstance(message, LAST_OF_A_TASK):
                return

    def surroundings(self) -> tuple[int, str, dict[str, str]]:
        """Process number, node and environment: for tests of what a worker can see."""
        import ray

        return os.getpid(), ray.get_runtime_context().get_node_id(), dict(os.environ)


class RayWorker(Worker):
    """An actor, and the streams of messages about the tasks it has, the current one first."""

    def __init__(self, actor: Any, pool: RayPool) -> None:
        self.actor, self._pool = actor, pool
        self.streams: collections.deque[Any] = collections.deque()

    def send(self, task: AttackTask) -> None:
        self.streams.append(self.actor.attack.options(num_returns="streaming").remote(task))

    def receive(self) -> Message:
        """Its next message; waits for it."""
        import ray

        try:
            message: Message = ray.get(next(self.streams[0]))
        except StopIteration:
            return WorkerLost("its answer broke off")
        except ray.exceptions.RayError as error:
            return WorkerLost(" ".join(str(error).split())[:300])
        if isinstance(message, LAST_OF_A_TASK):
            self.streams.popleft()
        return message

    def kill(self) -> None:
        import ray

        if not self._pool.gone:
            ray.kill(self.actor, no_restart=True)


class RayPool(WorkerPool):
    """Actors on a cluster that is there already (`address`), or on one of its own on this machine."""

    shares_files = False
    one_builds_first = True

    def __init__(self, limits: Limits, address: str, gpus: float) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("--executor ray needs Ray: pip install 'bench-keyed-defences[ray]'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        _check_address(address)
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
        self.gone = self._answered = False
        self._began = time.monotonic()

    def spawn(self) -> RayWorker:
        import ray

        # A lost actor is replaced by the pool, which counts attempts by shard; Ray itself shall try nothing again.
        remote = ray.remote(num_cpus=1, num_gpus=self._gpus, max_restarts=0, max_task_retries=0)(WorkerActor)
        settings = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        settings["BENCH_HOME"] = str(home().absolute())
        return RayWorker(remote.remote(settings, os.getcwd(), 1, self._memory), self)

    def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        import ray

        streams = {w.streams[0]: w for w in workers if isinstance(w, RayWorker) and w.streams}
        if not streams:
            time.sleep(seconds)
            return []
        try:
            ready, _ = ray.wait(list(streams), num_returns=1, timeout=seconds)
            self._check_size(bool(ready))
            received: list[tuple[Worker, Message]] = [(streams[stream], streams[stream].receive()) for stream in ready]
            if any(isinstance(message, WorkerLost) for _, message in received):
                time.sleep(SECONDS_OF_THE_HEAD)
                _check_address(self._head)  # a lost worker costs its shard an attempt, a lost cluster nothing
            return received
        except (ray.exceptions.RayError, ConnectionError, UsageError) as error:
            self.gone = True
            raise BenchError("the Ray cluster is gone: start it, then run the same command again") from error

    def _check_size(self, answered: bool) -> None:
        """A cluster too small for a worker, for as long as an autoscaler may take, is an error; a busy one is waited for."""
        import ray

        self._answered = self._answered or answered
        if self._answered or time.monotonic() - self._began < SECONDS_TO_SCALE:
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


@dataclasses.dataclass(frozen=True)
class RaySettings:
    """Which cluster, and what of it."""

    address: str = ""  # of a cluster that is up (auto, HOST:PORT); empty for one of its own, on this machine
    gpus_per_worker: float = 0.0  # fractions share one

    def __post_init__(self) -> None:
        if not 0 <= self.gpus_per_worker < math.inf:
            raise UsageError(f"ray: gpus_per_worker is {self.gpus_per_worker:g}; it must be 0 or more")


class Ray(ExecutorPlugin):
    """Actors on a Ray cluster."""

    Settings = RaySettings

    def start(self, name: str, limits: Limits, say: Say) -> Executor:
        pool = RayPool(limits, self.settings.address, self.settings.gpus_per_worker)
        return PoolExecutor(name, pool, limits, say)


def _check_address(address: str) -> None:
    """Refuses an address where nobody listens at once; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise _no_answer(address, error) from error


def _no_answer(address: str, error: Exception) -> BenchError:
    reason = " ".join(str(error).split())[:300]
    if not address:
        return BenchError(f"Ray does not start on this machine ({reason}): --executor local does without it")
    return UsageError(f"--ray-address {address}: no Ray cluster answers there ({reason})")
