"""What the harness adds to attack and classification, and what a second worker brings, on this machine.

python -m benchmarks.overhead [--examples 100] [--attack pgd] [--defence block-shuffle] [--source nominal]

The bare loop attacks shard after shard and has the referee judge them, in one process. The harness does the same with
a worker process, claims, checks, images on disk and a transaction a shard. Both are warm: every computation was
compiled before, on another seed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import contest, devices, keys, plan, registry, spec
from bench.executors import choosing
from bench.executors.pool import Limits
from bench.executors.worker import Attacker
from bench.progress import Reporter
from bench.run import Options, Run
from bench.store.database import open_database


def prepared(options: argparse.Namespace, seed: int) -> tuple[contest.Contest, list[plan.Pair]]:
    resolved = spec.resolve("laptop", norms=("linf",), examples=options.examples, seed=seed)
    ready = contest.prepare(resolved, options.defence, keys.load(None), None, False, print)
    defence = registry.create("defences", options.defence, resolved.defences.get(options.defence, {}))
    choice = plan.Choice(resolved.engines, resolved.budgets)
    return ready, plan.pairs([f"{options.attack}@{options.source}"], options.defence, defence, choice)


def bare(options: argparse.Namespace, folder: Path) -> Callable[[int], float]:
    """Seconds of attack and classification alone, for a seed."""
    attacker = Attacker(print)
    run = Run(open_database(str(folder / "bare.db"), create=True), folder, Options(), Reporter(quiet=True))

    def timed(seed: int) -> float:
        ready, pairs = prepared(options, seed)
        run.start(ready.spec)
        (cell,) = [c for c in run._planned(ready, pairs) if c.pair is not None]
        tasks = [(run._task(cell, start, stop), start, stop) for start, stop in cell.shards]
        ready.referee.judge(ready.images[:50], ready.examples.labels[:50], ready.images[:50], "linf", 1.0)
        began = time.perf_counter()
        for task, start, stop in tasks:
            images = attacker.run(task, lambda amount: None).images
            ready.referee.judge(
                ready.images[start:stop], ready.examples.labels[start:stop], images, "linf", ready.spec.epsilon["linf"]
            )
        return time.perf_counter() - began

    return timed


def harness(options: argparse.Namespace, folder: Path, workers: int) -> tuple[Callable[[int], float], Run]:
    """Seconds of a run's attacked cells, for a seed."""
    reporter = Reporter(quiet=True)
    executor = choosing.executor("local", Limits(workers), reporter.say)
    database = open_database(str(folder / f"workers{workers}.db"), create=True)
    run = Run(database, folder / f"images{workers}", Options(), reporter, executor)

    def timed(seed: int) -> float:
        ready, pairs = prepared(options, seed)
        run.start(ready.spec)
        run.execute(ready, [])  # the unperturbed images, and with them the referee's compiled function
        began = time.perf_counter()
        run.execute(ready, pairs)
        return time.perf_counter() - began

    return timed, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--attack", default="pgd")
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
            for way in ways.values():
                way(0)
            seconds = {way: [timed(seed) for seed in range(1, options.rounds + 1)] for way, timed in ways.items()}
        finally:
            run_one.close()
            run_two.close()
    middle = {way: statistics.median(found) for way, found in seconds.items()}
    print(f"{options.attack}@{options.source} on {options.defence}, {options.examples} examples, median of {options.rounds}")
    for way, found in middle.items():
        print(f"  {way:<12} {found:7.2f} s   {', '.join(f'{s:.2f}' for s in seconds[way])}")
    print(f"overhead of the harness: {100 * (middle['one worker'] / middle['bare loop'] - 1):+.1f} %")
    print(f"two workers against one: {middle['one worker'] / middle['two workers']:.2f} × as fast")


if __name__ == "__main__":
    main()
