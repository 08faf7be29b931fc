"""Stores to build sites from: one shaped like the paper's evaluation, one whose every name is hostile."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench import registry
from bench.data import datasets
from bench.evaluation import images
from bench.reproduction import reproduced, writing
from bench.reproduction.contents import Sizes
from bench.reproduction.results import Results
from bench.store import completeness, database, descriptions, example_sets, queries, schema, writer
from bench.store.coverage import Required
from bench.store.writer import ShardResult
from bench.support.fingerprint import fingerprint
from leaderboard.reproductions import Record

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>'\"&{{ 7*7 }}"
EPSILON = {"linf": 8 / 255, "l2": 0.5}
SIZES = Sizes(surrogates=4, reconstructions=4)
REPRODUCED = ("table1", "table3", "table4", "table7", "figure3")
ENGINES = {"aa": 400, "mt": 180, "pgd": 100, "square": 1000}

PARTS = {"aa": ("apgd-ce", "apgd-t", "fab-t", "square")}


@functools.cache
def attack_about(name: str) -> str:
    """What an engine says of itself; one that does not exist, its name."""
    if name not in registry.entries("attacks"):
        return json.dumps({"label": name, "meaning": name})
    return json.dumps(descriptions.of_engine(name, registry.engine(name, {})))


@functools.cache
def source_about(name: str, strategy: str) -> str:
    """What a strategy says of a source of its own; one that does not exist, its name."""
    if strategy not in registry.entries("attacks"):
        return json.dumps({"kind": name, "meaning": name, "strategy_label": strategy, "strategy_meaning": strategy})
    plugin = registry.strategy(strategy, {})
    described = plugin.describe(name, registry.defence("linac", {}))
    return json.dumps(descriptions.of_source(described, strategy, type(plugin)))


class Filler:
    """Writes boards as a run would, with answers drawn at random: each example has a strength, each cell a force."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.path = folder / "bench.db"
        self.database: Database = database.open_database(str(self.path), create=True)
        # Nobody waits for the disk: this store is not kept.
        sa.event.listen(
            self.database, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close()
        )
        self.database.dispose()
        self.random = np.random.default_rng(seed)
        self.run = writer.start_run(
            self.database,
            {
                "command": "bench run --defence linac --attack all",
                "preset": "laptop",
                "spec_json": json.dumps({"preset": "laptop", "dataset": "cifar10", "examples": 60}),
                "versions_json": json.dumps({"bench": "1.0", "python": "3.11"}),
                "device": "2 CPU cores",
                "git_commit": "c0ffee" * 6,
            },
        )

    def board(
        self,
        name: str,
        norm: str,
        n: int,
        *,
        epsilon: float | None = None,
        keyed: bool = True,
        settings: dict[str, Any] | None = None,
        description: str = "What it does, in a line.",
        required: Required | None = None,
    ) -> int:
        """An empty board on the first n shipped CIFAR-10 images."""
        examples = datasets.load("cifar10").examples(n)
        example_sets.keep(self.database, examples.fingerprint, examples.digests(example_sets.DIGEST_BYTES))
        size = EPSILON[norm] if epsilon is None else epsilon
        made_of = {"name": name, "settings": settings or {}}
        defence = writer.ensure(
            self.database,
            schema.defence,
            {
                "name": name,
                "version": "1",
                "params_json": json.dumps(settings or {}),
                "fingerprint": fingerprint(made_of),
                "keyed": keyed,
                "key_id": "published" if keyed else None,
                "weights_sha256": fingerprint(name),
                "description": description,
            },
        )
        return writer.ensure(
            self.database,
            schema.board,
            {
                "defence_id": defence,
                "dataset": "cifar10",
                "examples_sha256": examples.fingerprint,
                "norm": norm,
                "epsilon": size,
                "n_examples": n,
                "fingerprint": fingerprint([made_of, norm, size, n]),
                "required_json": required.to_json() if required else None,
            },
        )

    def cell(
        self, board: int, attack: str, source: str, strategy: str, inside: bool = True, scope: str = schema.ALL
    ) -> writer.CellKey:
        small = " small" if source.startswith("surrogate") else ""  # a budget of its own
        ids = [
            writer.ensure(
                self.database,
                table,
                {
                    "name": name,
                    "version": "1",
                    "params_json": json.dumps({"queries" if name == "square" else "steps": 5 if small else 20}),
                    "fingerprint": kind + name + small,
                    "about_json": said,
                },
            )
            for kind, table, name, said in (
                ("a", schema.attack, attack, attack_about(attack)),
                ("s", schema.source, source, source_about(source, strategy)),
            )
        ]
        key = (board, ids[0], ids[1])
        values = {"run_id": self.run, "strategy": strategy, "inside_threat_model": inside, "scope": scope}
        writer.ensure_cell(self.database, key, values)
        return key

    def fill(
        self,
        board: int,
        attack: str,
        source: str,
        strategy: str,
        share: float,
        strength: np.ndarray,
        *,
        inside: bool = True,
        upto: int | None = None,
        examples: Sequence[int] | None = None,
        pictures: bool = False,
        norm: str = "linf",
    ) -> writer.CellKey:
        """A cell that about `share` of the examples withstand, the strong ones rather than the weak.

        It is shown all of them, or the first so many, or with the scope `survivors` these.
        """
        scope, n = schema.ALL if examples is None else schema.SURVIVORS, len(strength)
        key = self.cell(board, attack, source, strategy, inside, scope)
        labels = datasets.load("cifar10").examples(n).labels
        margin = 6 * (strength - (1 - share)) + self.random.normal(0, 0.6, n)
        wrong = (labels + 1 + self.random.integers(0, 9, n)) % 10
        pred = np.where(margin >= 0, labels, wrong)
        own = list(range(n if upto is None else upto) if examples is None else examples)
        if not own:
            return key
        file = digest = None
        if pictures:
            clean = datasets.load("cifar10").examples(n).unit()[own]
            step = self.random.choice([-1, 1], clean.shape) * EPSILON["linf"] * {"linf": 1, "l2": 0.3}[norm]
            made = np.clip(clean + step, 0, 1).astype(np.float32)
            name = fingerprint([board, attack, source])
            file, digest = images.save(images.folder_of(str(self.path)), name, own[0], own[-1] + 1, made)
        rows = [
            {
                "example_idx": i,
                "correct": int(pred[i] == labels[i]),
                "pred": int(pred[i]),
                "label": int(labels[i]),
                "margin": float(margin[i]),
                "distance": 0.01,
                "source_success": 1,
                "source_margin": -1.0,
                "restart": 0,
                "target": -1,
                "part": i % 4 if attack == "aa" else -1,
                "gradients": ENGINES.get(attack, 1),
                "queries": 2,
            }
            for i in own
        ]
        writer.record_shard(
            self.database, key, ShardResult(rows, "test", 1.0, {}, PARTS.get(attack, ()), file, digest), n
        )
        return key

    def clean(self, board: int, share: float, strength: np.ndarray) -> None:
        self.fill(board, schema.CLEAN, schema.CLEAN, schema.CLEAN, share, strength)

    def standing(self, board: int, n: int) -> list[int]:
        """What a run with the scope `survivors` would show the next attack."""
        return sorted(set(range(n)).difference(completeness.stored_broken(self.database, board)))

    def on_survivors(
        self, board: int, attack: str, source: str, strategy: str, share: float, strength: np.ndarray, **options: Any
    ) -> None:
        """A cell that is shown what those before it have left."""
        left = self.standing(board, len(strength))
        self.fill(board, attack, source, strategy, share, strength, examples=left, **options)
        completeness.update(self.database, board)


def paper_like(folder: Path, n: int = 60, surrogates: int = 4) -> Filler:
    """LINAC as in the paper's tables, with surrogates and other epsilons; three other defences, a doubt, a failure."""
    filler = Filler(folder)
    strength = filler.random.random(n)
    for norm, ease in (("linf", 0.0), ("l2", 0.25)):
        board = filler.board(
            "linac",
            norm,
            n,
            settings={"layers": 5, "width": 256},
            description="Lossy Implicit Network Activation Coding.",
            required=Required("laptop", tuple(f"{engine}@bypass" for engine in ENGINES)),
        )
        filler.clean(board, 0.93, strength)
        sources = [("nominal", "transfer", 0.85), ("at-linf", "transfer", 0.6), ("at-l2", "transfer", 0.5)]
        sources += [(f"surrogate:{k}", "transfer", 0.88) for k in range(1, surrogates + 1)]
        sources += [(f"reconstruction:{k}", "bpda", 0.7) for k in range(1, surrogates + 1)] + [("bypass", "pba", 0.45)]
        for source, strategy, share in sources:
            for engine in ENGINES:
                pictures = engine in ("pgd", "mt")
                filler.fill(
                    board, engine, source, strategy, min(0.97, share + ease), strength, pictures=pictures, norm=norm
                )
        filler.fill(board, "square", "query", "query", 0.1, strength, inside=False)
    for epsilon in (2 / 255, 4 / 255, 16 / 255):
        board = filler.board("linac", "linf", n, epsilon=epsilon, settings={"layers": 5, "width": 256})
        filler.clean(board, 0.93, strength)
        filler.fill(board, "pgd", "at-l2", "transfer", 0.95 - 11 * epsilon, strength)
    for name, keyed, source, strategy, share in (
        ("block-shuffle", True, "bypass", "pba", 0.05),
        ("jpeg-23", False, "self", "bpda", 0.2),
        ("none", False, "self", "standard", 0.02),
    ):
        for norm in EPSILON:
            wanted = {"block-shuffle": ("nominal", "bypass"), "jpeg-23": ("self",), "none": ()}[name]
            pairs = tuple(f"{engine}@{one}" for one in wanted for engine in ENGINES)
            board = filler.board(name, norm, n, keyed=keyed, required=Required("laptop", pairs) if pairs else None)
            filler.clean(board, 0.9, strength)
            for engine in ENGINES:
                filler.fill(board, engine, source, strategy, share, strength)
            if name == "jpeg-23":
                filler.fill(board, "fab", source, strategy, share, strength, upto=n // 2)
                writer.fail_shard(
                    filler.database, filler.cell(board, "apgd-t", source, strategy), range(n), "w", "out of memory"
                )
                key = filler.cell(board, "pgd", source, strategy)
                writer.set_doubts(
                    filler.database,
                    key,
                    {"zero-gradient": f"Half of the gradients were zero ({n // 2} of {n} examples)"},
                )
    writer.finish_run(filler.database, filler.run)
    return filler


IN_ORDER = (
    ("pgd", "bypass", "pba", 0.75),
    ("pgd", "surrogate:1", "transfer", 0.8),
    ("pgd", "surrogate:2", "transfer", 0.8),
    ("aa", "bypass", "pba", 0.6),
    ("square", "nominal", "transfer", 0.7),
)


def surviving(folder: Path, n: int = 60) -> Filler:
    """Four boards: one whose attacks were shown what others had left (one of them not complete), one where nothing was
    left for most, one where some were shown everything, and one where all were; on the same examples."""
    filler = Filler(folder)
    order = [f"{attack}@{source}" for attack, source, *_ in IN_ORDER] + ["square@query"]
    request = {"linac": {"linf": order}, "block-shuffle": {"linf": order}}
    values = {"preset": "laptop", "spec_json": "{}", "versions_json": "{}", "device": ""}
    values |= {"command": "bench run --scope survivors", "order_json": json.dumps(request)}
    filler.run = writer.start_run(filler.database, values)
    strength = filler.random.random(n)
    for defence, ease, everything in (
        ("linac", 0.1, 0),
        ("block-shuffle", -1.0, 0),
        ("jpeg-23", 0.0, 2),
        ("none", 0.0, len(IN_ORDER)),
    ):
        required = Required("laptop", tuple(f"{attack}@{source}" for attack, source, *_ in IN_ORDER))
        board = filler.board(defence, "linf", n, required=required)
        filler.clean(board, 0.9, strength)
        for place, (attack, source, strategy, share) in enumerate(IN_ORDER):
            if place < everything:
                filler.fill(board, attack, source, strategy, share + ease, strength)
            else:
                filler.on_survivors(
                    board, attack, source, strategy, share + ease, strength, pictures=defence == "linac"
                )
        filler.on_survivors(board, "square", "query", "query", 0.5 + ease, strength, inside=False)
        if defence == "linac":
            left = filler.standing(board, n)
            filler.fill(board, "mt", "bypass", "pba", 0.5, strength, examples=left[: len(left) // 2])
            completeness.update(filler.database, board)
    return filler


def unevenly_covered(folder: Path) -> dict[str, int]:
    """Boards by name: one with two of eight cells on many images and one with all on few of the same, one that is
    stronger than both but has a cell less, and one of which nobody has said what it must have."""
    filler, found = Filler(folder), {}
    eight = Required("laptop", tuple(f"{engine}@{source}" for engine in ENGINES for source in ("nominal", "bypass")))
    for name, defence, n, share, pairs, required in (
        ("two cells", "linac", 60, 0.6, eight.pairs[:2], eight),
        ("all cells", "linac", 20, 0.3, eight.pairs, eight),
        ("stronger", "block-shuffle", 60, 0.9, eight.pairs[:7], eight),
        ("unknown", "none", 60, 0.9, eight.pairs, None),
    ):
        found[name] = board = filler.board(defence, "linf", n, required=required)
        strength = filler.random.random(n)
        filler.clean(board, 0.95, strength)
        for engine, source in (pair.split("@") for pair in pairs):
            filler.fill(board, engine, source, "pba" if source == "bypass" else "transfer", share, strength)
    return found


def reproduce(filler: Filler, site: Path, norms: tuple[str, ...] = ("linf", "l2")) -> Results:
    """Tables and a figure of the paper from what `paper_like` stored, written into a site; gives what they were made of."""
    results = Results(filler.database, norms)
    for board in queries.boards(filler.database):
        if board.epsilon == EPSILON[board.norm] and board.norm in norms:
            cells = {(c.attack, c.source): (c.attack_id, c.source_id) for c in board.cells if c.inside_threat_model}
            results.add(board.defence, board.norm, board.id, cells)
    for name in REPRODUCED:
        item = reproduced.from_results(name, SIZES, results)
        failed = ["pca-full: the classifier of pca-full is not trained yet"] if name == "table3" else []
        record = Record(
            preset="laptop",
            made="2026-01-02T03:04:05+00:00",
            complete=item.complete and not failed,
            examples=60,
            command=f"bench reproduce {name}",
            differences=[("test images", "60", "10,000")],
            failed=failed,
        )
        writing.write_files(site, item, record)
    return results


def hostile(folder: Path, n: int = 10) -> Filler:
    """All that a plug-in or a user can name, full of HTML: defence, settings, attack, source, error, doubt, command."""
    filler = Filler(folder)
    filler.run = writer.start_run(
        filler.database,
        {
            "command": HOSTILE,
            "preset": HOSTILE[:40],
            "spec_json": json.dumps({HOSTILE: HOSTILE}),
            "versions_json": json.dumps({HOSTILE: HOSTILE}),
            "device": HOSTILE,
            "git_commit": HOSTILE[:60],
        },
    )
    strength = filler.random.random(n)
    for name in (HOSTILE, HOSTILE + "2"):
        required = Required(HOSTILE[:50], (f"{HOSTILE}@{HOSTILE}", f"{HOSTILE}@missing"))
        board = filler.board(name, "linf", n, settings={HOSTILE: HOSTILE}, description=HOSTILE, required=required)
        filler.clean(board, 0.9, strength)
        key = filler.fill(board, HOSTILE, HOSTILE, HOSTILE[:50], 0.5, strength)
        writer.set_doubts(filler.database, key, {HOSTILE: HOSTILE})
        filler.fill(board, HOSTILE, HOSTILE + ":1", HOSTILE[:50], 0.4, strength)
        filler.fill(board, HOSTILE, HOSTILE + ":2", HOSTILE[:50], 0.4, strength)
        filler.fill(board, HOSTILE + "o", HOSTILE, HOSTILE[:50], 0.4, strength, inside=False)
        writer.fail_shard(
            filler.database, filler.cell(board, HOSTILE + "f", HOSTILE, HOSTILE[:50]), range(n), HOSTILE, HOSTILE
        )
    return filler
