"""Workers on a Ray cluster: Ray places their processes, which connect back and speak as local ones do.

What is done is in the store; Ray keeps nothing of value, and nothing that an attack has made passes through it.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from bench.api import BenchError, UsageError
from bench.executors import codec, rendezvous
from bench.executors.base import AttackTask, Executor, ExecutorPlugin, Limits, Say
from bench.executors.channel import Channel, ChannelClosed, Malformed
from bench.executors.child import kill_group, spawn_process
from bench.executors.conversation import Conversation
from bench.executors.messages import BrokenReply, Message, WorkerLost
from bench.executors.pool import PoolExecutor, Worker, WorkerPool
from bench.executors.rendezvous import Invitation, Listener
from bench.executors.serving import serve
from bench.support.cache import home

SECONDS_TO_SCALE = 120.0  # without a message from any worker, at the start, until the cluster's size is checked
SECONDS_OF_THE_HEAD = 2.0  # by which the head may outlive a worker where a whole cluster ends
SECONDS_TO_LOOK = 0.1  # between looks for a worker that is not there yet
SECONDS_TO_LEAVE = 3.0  # for an actor to end its process
# Settings that a node takes from the driver, unless it has its own; never the key
FORWARDED = ("BENCH_ARTIFACTS", "TF_ENABLE_ONEDNN_OPTS")


class WorkerActor:
    """The actor: starts a worker's process on its node, and ends it. It runs no attack itself."""

    def serve(
        self, invitation: Invitation, settings: dict[str, str], folder: str, threads: int, memory: int | None
    ) -> None:
        """Has a process of its own attack for the driver until either is gone."""
        with rendezvous.connect(invitation) as connection:
            if "BENCH_KEY" in os.environ:
                refusal = "this Ray node was started with BENCH_KEY in its environment: start it without the key"
                Channel(connection).send(codec.encoded(WorkerLost(refusal)).document)
                return
            for name, value in settings.items():
                os.environ.setdefault(name, value)
            if Path(folder).is_dir():
                os.chdir(folder)  # so that relative paths of the command line mean the same here
            process = spawn_process(serve, "bench-attacker", connection, threads, memory)
            try:
                while process.exitcode is None and not _hung_up(connection, 0.5):
                    pass
            finally:
                kill_group(process)


def _hung_up(connection: socket.socket, seconds: float) -> bool:
    """Whether the driver has closed the connection, waiting so long for it; what it has sent is another's to read."""
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(1000 * seconds))


class RayWorker(Worker):
    """A process on the cluster: the actor that keeps it, and the channel to it, once it has connected.

    Nothing that the actor returns is ever read (`ray.get` unpickles): that its call has ended is all that is asked.
    """

    def __init__(self, actor: Any, call: Any, invitation: Invitation, pool: RayPool) -> None:
        self.actor, self.call, self._invitation, self._pool = actor, call, invitation, pool
        self.channel: Channel | None = None
        self._conversation = Conversation()
        self._unsent: list[AttackTask] = []
        self._killed = False

    def send(self, task: AttackTask) -> None:
        if self.channel is None:
            self._unsent.append(task)
        else:
            self._conversation.send(self.channel, task)

    def reached(self) -> bool:
        """Whether it has connected; what waited for that is sent."""
        if self.channel is None and (connection := self._pool.listener.arrived(self._invitation)):
            self.channel = Channel(connection)
            for task in self._unsent:
                self._conversation.send(self.channel, task)
            self._unsent.clear()
        return self.channel is not None

    def messages(self, ended: bool) -> list[Message]:
        """What it has said by now; waits for nothing. `ended` says that its actor is no more."""
        if self.channel is None:
            return [WorkerLost("its Ray actor ended before it reached this driver")] if ended else []
        try:
            frames = self.channel.waiting()
        except ChannelClosed:
            return [WorkerLost("its process on the Ray cluster ended")]
        except Malformed as error:
            return [BrokenReply(str(error))]
        if ended and not frames:
            return [WorkerLost("its Ray actor ended")]
        return list(self._conversation.messages(frames))

    def kill(self) -> None:
        """The actor ends its process when the connection closes, and is itself ended later (`RayPool`)."""
        if self._killed:
            return
        self._killed = True
        if self.channel is not None:
            self.channel.close()
        self._pool.listener.withdraw(self._invitation)
        self._pool.leave(self)


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
        # A cluster of its own is on this machine, and nobody else need reach it.
        self.listener = Listener(str(ray.util.get_node_ip_address()) if address else "127.0.0.1")
        self.gone = self._answered = False
        self._began = time.monotonic()
        self._leaving: list[tuple[RayWorker, float]] = []

    def spawn(self) -> RayWorker:
        import ray

        # A lost actor is replaced by the pool, which counts attempts by shard; Ray itself shall try nothing again.
        remote: Any = ray.remote(num_cpus=1, num_gpus=self._gpus, max_restarts=0, max_task_retries=0)(WorkerActor)
        settings = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        settings["BENCH_HOME"] = str(home().absolute())
        actor, invitation = remote.remote(), self.listener.invite()
        call = actor.serve.remote(invitation, settings, os.getcwd(), 1, self._memory)
        return RayWorker(actor, call, invitation, self)

    def receive(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        import ray

        own = [worker for worker in workers if isinstance(worker, RayWorker)]
        channels = [worker.channel.fileno() for worker in own if worker.reached() and worker.channel]
        wait_for(channels, seconds if len(channels) == len(own) else min(seconds, SECONDS_TO_LOOK))
        try:
            ended = self._ended(own)
            received = [(worker, message) for worker in own for message in worker.messages(worker in ended)]
            self._check_size(bool(received or channels))
            self._see_off()
            if any(isinstance(message, WorkerLost) for _, message in received):
                time.sleep(SECONDS_OF_THE_HEAD)
                _check_address(self._head)  # a lost worker costs its shard an attempt, a lost cluster nothing
            return list(received)
        except (ray.exceptions.RayError, ConnectionError, UsageError) as error:
            self.gone = True
            raise BenchError("the Ray cluster is gone: start it, then run the same command again") from error

    def leave(self, worker: RayWorker) -> None:
        """Gives a worker's actor a moment to end its process and what that has started."""
        self._leaving.append((worker, time.monotonic() + SECONDS_TO_LEAVE))

    def _see_off(self) -> None:
        """Ends the actors of workers that were killed, once their processes are gone."""
        import ray

        ended = self._ended([worker for worker, _ in self._leaving])
        for worker, deadline in list(self._leaving):
            if worker in ended or time.monotonic() > deadline:
                self._leaving.remove((worker, deadline))
                ray.kill(worker.actor, no_restart=True)

    def _ended(self, workers: Sequence[RayWorker]) -> set[RayWorker]:
        """Whose actors are no more, or have done."""
        import ray

        calls = {worker.call: worker for worker in workers}
        if not calls:
            return set()
        ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0, fetch_local=False)
        return {calls[call] for call in ready}

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

        self.listener.close()
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
            while self._leaving and not self.gone:
                self._see_off()
                time.sleep(SECONDS_TO_LOOK)
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
