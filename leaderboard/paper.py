"""What the paper has: its tables and figures by title, and its numbers, `paper_results.csv`, as its tables have them."""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path

from bench.api import attacker_key

CITATION = "Rusu et al., Hindering Adversarial Attacks with Implicit Neural Representations, ICML 2022"
EXAMPLES = 10_000
"""The paper's numbers are over the CIFAR-10 test set."""

BEST_KEYS = tuple(
    (attacker_key(number), share)
    for number, share in enumerate((57.0, 55.0, 55.0, 55.0, 55.0, 55.0, 54.0, 54.0, 54.0, 54.0), 1)
)
"""Table 4: the best of its 100,000 guessed keys, and the share of 100 test images (percent) that each gets right."""

STRATEGIES = {"standard": "Standard", "bpda": "BPDA", "pba": "Bypass (PBA)"}
"""What the strategies of its Table 3 are called."""

SOURCE_MODELS, SOURCE_MODELS_TITLE = ("transfer", "bpda"), "Transfer and BPDA"
"""The strategies whose sources its Tables 1 and 2 call all source models, and what both are called together."""

ENGINES = ("aa", "mt", "pgd", "square")
"""In the order of its tables."""

TITLES = {
    "table1": "LINAC under transfer attacks",
    "table2": "LINAC by strategy: transfer, BPDA, bypass",
    "table3": "Related defences, each under its strongest strategy",
    "table4": "The best guessed keys",
    "table5": "LINAC under transfer from surrogates, one by one",
    "table6": "LINAC under BPDA on reconstructions, one by one",
    "table7": "Block Pixel Shuffle under transfer and bypass attacks",
    "figure2": "Accuracy of the defended classifier under guessed keys",
    "figure3": "Best Known against the number of surrogates",
    "figure4": "Decision boundaries of five classifiers",
    "figure5": "What Block Pixel Shuffle does to an image",
    "figure6": "Sensitivity of LINAC to F, its frequencies",
    "figure7": "Sensitivity of LINAC to L, its layers",
    "figure8": "Sensitivity of LINAC to K, the layer it gives",
    "figure9": "Sensitivity of LINAC to N, the epochs of a fit",
    "figure10": "Errors of LINAC's fit against its steps",
    "figure11": "How LINAC's errors are spread over the test images",
    "figure12": "Images and what LINAC keeps of them, private key",
    "figure13": "Images and what LINAC keeps of them, another key",
    "figure14": "Three images under one key, channel by channel",
    "figure15": "The first image under three keys, channel by channel",
    "figure16": "The second image under three keys, channel by channel",
    "figure17": "The third image under three keys, channel by channel",
}
"""Its tables and figures, but for Figure 1, which is a drawing."""

EPSILONS = {"linf": 8 / 255, "l2": 0.5}
_FILE = Path(__file__).parent / "paper_results.csv"


@dataclasses.dataclass(frozen=True)
class PublishedNumber:
    """One number of the paper's tables, in percent; None where the paper has a dash."""

    where: str
    defence: str
    norm: str
    attack: str
    source: str
    accuracy: float | None


@dataclasses.dataclass(frozen=True)
class PublishedDefence:
    """A defence in the paper's Table 3: the strongest attack strategy it reports for it."""

    defence: str
    norm: str
    clean: float
    best_known: float
    strategy: str
    """One of `STRATEGIES`."""
    engines: dict[str, float | None]


@functools.cache
def numbers() -> tuple[PublishedNumber, ...]:
    """Every number of the paper's tables and sensitivity analyses."""
    with _FILE.open(newline="") as stream:
        return tuple(
            PublishedNumber(where, defence, norm, attack, source, float(accuracy) if accuracy else None)
            for where, defence, norm, attack, source, accuracy in list(csv.reader(stream))[1:]
        )


def label(name: str) -> str:
    """'Table 1' of table1."""
    kind = name.rstrip("0123456789")
    return f"{kind.capitalize()} {name.removeprefix(kind)}"


def table3(norm: str) -> list[PublishedDefence]:
    """The paper's Table 3 in a norm, the most robust first."""
    own = [number for number in numbers() if number.where == "table3"]
    clean = {f.defence: f.accuracy for f in own if f.attack == "clean"}
    rows = []
    for known in own:
        if known.norm != norm or known.attack != "best_known" or known.accuracy is None:
            continue
        engines = {
            f.attack: f.accuracy
            for f in own
            if f.norm == norm and f.defence == known.defence and f.attack not in ("best_known", "clean")
        }
        rows.append(
            PublishedDefence(known.defence, norm, clean[known.defence] or 0.0, known.accuracy, known.source, engines)
        )
    return sorted(rows, key=lambda row: (-row.best_known, row.defence))


def count(accuracy: float) -> int:
    """A percentage of the paper as a count of its test images, for its interval."""
    return round(accuracy / 100 * EXAMPLES)


_MATRIX = {  # sources as in Tables 1, 2 and 7, and what the pages call them
    "nominal": "nominal",
    "at-linf": "at-linf",
    "at-l2": "at-l2",
    "surrogate:all": "surrogate:1–10",
    "reconstruction:all": "reconstruction:1–10",
    "pba": "bypass",
    "all-transfer": "all but bypass",
    "all": "all",
}


def matrix(defence: str, norm: str) -> dict[str, dict[str, float | None]]:
    """The paper's engine × source table of a defence, by engine and then by source; empty if it has none."""
    rows: dict[str, dict[str, float | None]] = {}
    for f in numbers():
        if f.where in ("table1", "table2", "table7") and (f.defence, f.norm) == (defence, norm) and f.source in _MATRIX:
            rows.setdefault(f.attack, {})[_MATRIX[f.source]] = f.accuracy
    order = list(_MATRIX.values())
    return {engine: dict(sorted(row.items(), key=lambda item: order.index(item[0]))) for engine, row in rows.items()}
