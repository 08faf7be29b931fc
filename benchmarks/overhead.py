"""What the harness adds to attack and classification, and what a second worker brings, on this machine.

python -m benchmarks.overhead [--examples 100] [--shard-size 50] [--defence block-shuffle] [--source nominal]

The bare loop attacks shard after shard and has the referee judge them, in one process. The harness does the same with
a worker process, claims, checks, images on disk and one transaction per shard. Both are warm: every computation was
compiled before, on another seed. Wall time is what counts on an idle machine; processor time, of the driver and its
workers, hardly changes on a busy one.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import keys, plan, registry, spec
from bench.evaluation import contest
from bench.evaluation.run import Options, Run
from bench.executors import base
from bench.executors.base import Limits
from bench.executors.worker import Attacker
from bench.store.database import open_database
from bench.support import devices
from bench.support.progress import Reporter
from bench.vault.here import VaultHere


@dataclasses.dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of processors."""

    wall: float
    cpu: float


@contextlib.contextmanager
def stopwatch(found: list[Spent]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), _cpu()
    yield
    found.append(Spent(time.perf_counter() - wall, _cpu() - cpu))


def _cpu() -> float:
    """Processor seconds of this process and of the children it has now."""
    own, ticks = os.getpid(), 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == own or path.parent.name == str(own):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def prepared(options: argparse.Namespace, seed: int) -> tuple[contest.Contest, list[plan.Pair]]:
    resolved = spec.resolve("laptop", norms=("linf",), examples=options.examples, seed=seed)
    ready = contest.prepare(resolved, options.defence, VaultHere(keys.published()), None, False, print)
    defence = registry.defence(options.defence, resolved.defences.get(options.defence, {}))
    choice = plan.Choice(resolved.engines, resolved.budgets)
    return ready, plan.pairs([f"{options.attack}@{options.source}"], options.defence, defence, choice)


def bare(options: argparse.Namespace, folder: Path) -> Callable[[int], Spent]:
    """The cost of attack and classification alone, for a seed."""
    attacker = Attacker(print)
    run = Run(
        open_database(str(folder / "bare.db"), create=True), folder, Options(shard_size=options.shard_size),
        Reporter(quiet=True),
    )  # fmt: skip

    def timed(seed: int) -> Spent:
        ready, pairs = prepared(options, seed)
        run.start(ready.spec)
        (cell,) = [c for c in run._planned(ready, pairs) if c.pair is not None]
        tasks = [(run._task(0, cell, start, stop), start, stop) for start, stop in cell.shards]
        ready.referee.judge(ready.images[:50], ready.examples.labels[:50], ready.images[:50], "linf", 1.0)
        found: list[Spent] = []
        with stopwatch(found):
            for task, start, stop in tasks:
                images, labels = ready.images[start:stop], ready.examples.labels[start:stop]
                attacked = attacker.run(task, lambda amount: None).images
                ready.referee.judge(images, labels, attacked, "linf", ready.spec.epsilon["linf"])
        return found[0]

    return timed


def harness(options: argparse.Namespace, folder: Path, workers: int) -> tuple[Callable[[int], Spent], Run]:
    """The cost of a run's attacked cells, for a seed."""
    reporter = Reporter(quiet=True)
    executor = base.start("local", Limits(workers), reporter.say)
    database = open_database(str(folder / f"workers{workers}.db"), create=True)
    run = Run(database, folder / f"images{workers}", Options(shard_size=options.shard_size), reporter, executor)

    def timed(seed: int) -> Spent:
        ready, pairs = prepared(options, seed)
        run.start(ready.spec)
        run.execute(ready, [])  # the unperturbed images, and with them the referee's compiled function
        found: list[Spent] = []
        with stopwatch(found):
            run.execute(ready, pairs)
        return found[0]

    return timed, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--shard-size", type=int, default=50)
    parser.add_argument("--attack", default="pgd[steps=50,restarts=2]")
    parser.add_argument("--defence", default="block-shuffle")
    parser.add_argument("--source", default="nominal")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    devices.configure()
    with tempfile.TemporaryDirectory() as name:
        one, run_one = harness(options, Path(name), 1)
        two, run_two = harness(options, Path(name), 2)
        ways: dict[str, Any] = {"bare loop": bare(options, Path(name)), "one worker": one, "two workers": two}
        try:
            for timed in ways.values():
                timed(0)
            seconds: dict[str, list[Spent]] = {way: [] for way in ways}
            for seed in range(1, options.rounds + 1):  # by turns, so that what else the machine does meets all alike
                for way, timed in ways.items():
                    seconds[way].append(timed(seed))
        finally:
            run_one.close()
            run_two.close()
    print(f"{options.attack}@{options.source} on {options.defence}, {options.examples} examples in shards of "
          f"{options.shard_size}, median of {options.rounds}")  # fmt: skip
    wall = {way: statistics.median(spent.wall for spent in found) for way, found in seconds.items()}
    cpu = {way: statistics.median(spent.cpu for spent in found) for way, found in seconds.items()}
    for way in ways:
        print(f"  {way:<12} {wall[way]:7.2f} s by the clock, {cpu[way]:7.2f} s of processors")
    for name, found in (("by the clock", wall), ("of processors", cpu)):
        print(f"overhead of the harness {name}: {100 * (found['one worker'] / found['bare loop'] - 1):+.1f} %")
    print(f"two workers against one: {wall['one worker'] / wall['two workers']:.2f} × as fast")


if __name__ == "__main__":
    main()
