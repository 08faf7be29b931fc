"""Measures in which order attacks are the cheapest way to Best Known, and writes bench/order.csv.

    bench data fetch
    python -m benchmarks.order --images 100                        # all defences of the zoo, by the preset laptop
    python -m benchmarks.order --images 100 --defence linac        # only this one: the others' rows stay

Every attack that `--attack all` means is run on every one of the first training images, never on test images: each
image goes through all of them, and the order is then greedy, the most images broken per second first. Seconds are of the
attack and of judging its images here. Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import time
from pathlib import Path

import numpy as np

from bench import keys, order, spec
from bench.data import datasets
from bench.evaluation import contest, images, session
from bench.evaluation.run import Options, Run
from bench.executors.base import Limits, start
from bench.order import Measured
from bench.store import queries
from bench.store.database import open_database
from bench.store.outcomes import outcomes
from bench.support import devices
from bench.support.progress import Reporter
from bench.vault.here import VaultHere

DEFENCES = ("none", "block-shuffle", "jpeg-23", "jpeg-10", "pca-full", "pca-block", "linac")
TRAINING = datasets.load


def of_training_images(name: str) -> datasets.Dataset:
    """The dataset with its training images in place of the test images: the models are the same."""
    found = TRAINING(name)
    return dataclasses.replace(found, test=found.training())


def judging(ready: contest.Contest, norm: str, count: int = 32) -> float:
    """Seconds per image that the referee takes."""
    clean, labels = ready.images[:count], ready.examples.labels[:count]
    found = []
    for _ in range(3):
        began = time.perf_counter()
        ready.referee.judge(clean, labels, clean, norm, ready.spec.epsilon[norm])
        found.append((time.perf_counter() - began) / len(clean))
    return min(found)


def measure(defence: str, by: spec.Spec, db: Path) -> list[Measured]:
    """Runs what is not stored yet; the rows of the table for a defence."""
    vault, reporter = VaultHere(keys.published()), Reporter()
    request = session.Request(by, (defence,), ("all",), vault)
    (planned,) = session.planned(request)
    inside = [pair for pair in planned.pairs if pair.inside_threat_model]
    database = open_database(str(db), create=True)
    run = Run(database, images.folder_of(str(db)), Options(), reporter, start("local", Limits(), reporter.say))
    ready = contest.prepare(by, defence, vault, None, True, reporter.say)
    with session.recorded(run, by):
        run.execute(ready, inside)
    kinds, rows = {pair.source: pair.description.kind for pair in inside}, []
    for board in queries.boards(database):
        if board.defence != defence:
            continue
        found, cost = outcomes(database, board), judging(ready, board.norm)
        cells = [column for column in found.counted if found.cells[column].source in kinds]
        assert found.clean is not None
        seconds = np.array([found.cells[c].seconds / found.cells[c].n_done + cost for c in cells])
        broken = found.wrong[:, cells].T
        for place, left in order.cheapest(broken, found.clean, seconds):
            cell = found.cells[cells[place]]
            breaks = float((broken[place] & found.clean).sum() / max(found.clean.sum(), 1))
            rows.append(
                Measured(
                    defence, board.norm, cell.attack, cell.source, kinds[cell.source],
                    round(float(seconds[place]), 4), round(breaks, 4), round(left, 4),
                )
            )  # fmt: skip
    database.dispose()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--defence", action="append", choices=DEFENCES, help="only this one; again for more")
    parser.add_argument("--images", type=int, default=100, help="the first so many training images")
    parser.add_argument("--preset", default="laptop", help="whose budgets")
    parser.add_argument("--db", type=Path, default=Path("results/order.db"), help="where results are kept")
    asked = parser.parse_args()
    devices.configure()
    datasets.load = of_training_images
    by = dataclasses.replace(spec.resolve(asked.preset, examples=asked.images), scope="all", reference=())
    kept = list(order.table()) if order.TABLE.exists() else []
    for defence in asked.defence or DEFENCES:
        found = measure(defence, by, asked.db)
        kept = [*(row for row in kept if row.defence != defence), *found]
        with order.TABLE.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(Measured._fields)
            writer.writerows(kept)
        for row in found:
            print(*row)


if __name__ == "__main__":
    main()
