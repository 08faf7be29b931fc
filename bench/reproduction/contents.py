"""What the paper's tables and figures are, and which attacks on which defences each is made of. No store, no models."""

from __future__ import annotations

import dataclasses

from leaderboard.paper import TITLES

ENGINES = ("aa", "mt", "pgd", "square")  # the paper's order
PLAIN = ("nominal", "at-linf", "at-l2")
LINAC, SHUFFLE = "linac", "block-shuffle"
KEYS = 10  # the paper's surrogates, and the keys of its Table 4

NAMES = tuple(TITLES)
GRIDS = ("table1", "table2", "table3", "table5", "table6", "table7")
KEY_SEARCH = ("table4", "figure2")
CURVE = "figure3"


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A figure over one setting of LINAC: its symbol in the paper, its name here, and which of the sizes has its values."""

    symbol: str
    setting: str
    values: str


SWEEPS = {
    "figure6": Sweep("F", "frequencies", "frequencies"),
    "figure7": Sweep("L", "layers", "layers"),
    "figure8": Sweep("K", "representation_layer", "representation_layers"),
    "figure9": Sweep("N", "epochs", "epochs"),
}


STORED = (*GRIDS, *KEY_SEARCH, CURVE, *SWEEPS)
"""Those that are made of stored results; the others are drawn by the gallery."""

UNCLASSIFIED = ("figure5", *(f"figure{number}" for number in range(10, 18)))
"""Those that show a transform, and need no classifier."""

OF_BOARDS = tuple(
    name for name in NAMES if name not in (*KEY_SEARCH, "figure5", *(f"figure{n}" for n in range(12, 18)))
)
"""Those over the examples of a board; the others take a few test images of their own, whatever the preset's number is."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much of the paper is run; as it stands, all of it."""

    engines: tuple[str, ...] = ENGINES
    transfer: tuple[str, ...] = PLAIN
    """Which of the attacker's plain networks are sources."""
    surrogates: int = KEYS
    reconstructions: int = KEYS
    guesses: int = 100_000
    frequencies: tuple[int, ...] = (3, 5, 7, 10)
    layers: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    representation_layers: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: tuple[int, ...] = (5, 10, 15, 20, 25, 50)
    sweep_source: str = "at-l2"
    """What the attacks of the sensitivity figures are made with."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: a defence under attacks from some sources, and what `paper_results.csv` calls them."""

    title: str
    defence: str
    sources: tuple[str, ...]
    published: str


@dataclasses.dataclass(frozen=True)
class Need:
    """An attack from a source on a defence, `name[setting=value]`; the points of a sweep have a recipe of their own."""

    defence: str
    engine: str
    source: str
    sweep: bool = False


def members(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind}:{number}" for number in range(1, count + 1))


def columns(name: str, sizes: Sizes) -> list[Column]:
    """The columns of a table, in the paper's order; one whose sources are not run at this size has none."""
    plain = [Column(source, LINAC, _chosen((source,), sizes), source) for source in PLAIN]
    surrogates, reconstructions = (
        members("surrogate", sizes.surrogates),
        members("reconstruction", sizes.reconstructions),
    )
    all_transfer = (*_chosen(PLAIN, sizes), *surrogates, *reconstructions)
    if name == "table1":
        return [
            *plain,
            Column(_family("surrogate", surrogates), LINAC, surrogates, "surrogate:all"),
            Column(_family("reconstruction", reconstructions), LINAC, reconstructions, "reconstruction:all"),
            Column("all sources", LINAC, all_transfer, "all-transfer"),
        ]
    if name == "table2":
        return [
            Column("Transfer, all sources", LINAC, all_transfer, "all-transfer"),
            Column("BPDA", LINAC, reconstructions, "bpda"),
            Column("Bypass (PBA)", LINAC, ("bypass",), "pba"),
        ]
    if name == "table3":
        strategies = {
            "pca-full": "standard", "pca-block": "standard", "jpeg-23": "bpda", "jpeg-10": "bpda", SHUFFLE: "pba",
            LINAC: "pba",
        }  # fmt: skip
        return [
            Column(defence, defence, ("bypass",) if strategy == "pba" else ("self",), strategy)
            for defence, strategy in strategies.items()
        ]
    if name in ("table5", "table6"):
        kind, own = ("surrogate", surrogates) if name == "table5" else ("reconstruction", reconstructions)
        each = [
            Column(f"key {number}", LINAC, (source,) if source in own else (), source)
            for number, source in enumerate(members(kind, max(KEYS, len(own))), 1)
        ]
        return [*each, Column("all keys", LINAC, own, f"{kind}:all")]
    assert name == "table7"
    sources = _chosen(PLAIN, sizes)
    return [
        *(Column(source, SHUFFLE, _chosen((source,), sizes), source) for source in PLAIN),
        Column("Bypass (PBA)", SHUFFLE, ("bypass",), "pba"),
        Column("all sources", SHUFFLE, (*sources, "bypass"), "all"),
    ]


def points(name: str, sizes: Sizes) -> dict[int, str]:
    """The defences of a sensitivity figure by the setting's value."""
    sweep = SWEEPS[name]
    return {value: f"{LINAC}[{sweep.setting}={value}]" for value in getattr(sizes, sweep.values)}


def needs(name: str, sizes: Sizes) -> list[Need]:
    """Everything that has to be run for a table or a figure, each once."""
    if name in SWEEPS:
        return [Need(defence, "pgd", sizes.sweep_source, sweep=True) for defence in points(name, sizes).values()]
    if name == CURVE:
        sources = (*members("surrogate", sizes.surrogates), *members("reconstruction", sizes.reconstructions))
        return [Need(LINAC, engine, source) for source in sources for engine in sizes.engines]
    if name not in GRIDS:
        return []
    wanted = (
        Need(column.defence, engine, source)
        for column in columns(name, sizes)
        for source in column.sources
        for engine in sizes.engines
    )
    return list(dict.fromkeys(wanted))


def _chosen(sources: tuple[str, ...], sizes: Sizes) -> tuple[str, ...]:
    return tuple(source for source in sources if source in sizes.transfer)


def _family(kind: str, sources: tuple[str, ...]) -> str:
    return f"{kind}:1–{len(sources)}" if len(sources) > 1 else f"{kind}s"
