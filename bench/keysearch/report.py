"""A key search for people and for programs: the histogram (Figure 2), the best ten (Table 4), what it cost, the verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from bench.store.key_searches import KeyGuess, KeySearch
from bench.support.printable import markup
from bench.support.progress import duration
from bench.support.stats import wilson

BIN = 5  # percentage points
BAR = 50


def print_report(search: KeySearch, found_at: Mapping[int, int], console: Console) -> None:
    """Everything, as text."""
    for line in heading(search):
        console.print(markup(line))
    console.print()
    for line in histogram(search):
        console.print(markup(line))
    console.print()
    console.print(best_table(search))
    for line in (*cost(search), "", *verdict(search, found_at)):
        console.print(markup(line), style="bold" if line.startswith("BROKEN") else "")


def heading(search: KeySearch) -> list[str]:
    made = ", ".join(f"{count:,} {origin}" for origin, count in sorted(search.origins.items())) or "none yet"
    lines = [
        f"key search on {search.defence} (key '{search.key_id}'), "
        f"{search.n_images} {search.split} images of {search.dataset}",
        f"guesses: {made}",
        f"defended accuracy: {_percent(search.defended_accuracy)} "
        f"(with the private key, {search.defended_images:,} test images)",
    ]
    if not search.inside_threat_model:
        lines.append(
            "OUTSIDE the threat model: scored on test images, as the paper did; an attacker has training images"
        )
    return lines


def histogram(search: KeySearch) -> list[str]:
    """Guesses by accuracy, a line for every bin from the lowest to the highest that is not empty."""
    if not search.guesses:
        return ["no guess is scored yet"]
    counts: dict[int, list[int]] = {}
    for guess in search.guesses:
        pair = counts.setdefault(_bin(guess.accuracy), [0, 0])
        pair[0] += 1
        pair[1] += guess.images < search.n_images
    most, defended = max(total for total, _ in counts.values()), _bin(search.defended_accuracy)
    lines = ["accuracy %   guesses"]
    for bin in range(min(*counts, defended), max(*counts, defended) + 1):
        total, early = counts.get(bin, (0, 0))
        bar = " " + "█" * (-(-BAR * total // most)) if total else ""
        mark = "  ← defended accuracy" if bin == defended else ""
        cut = f" ({early:,} dropped early)" if early else ""
        lines.append(f"{bin * BIN:>4} to {(bin + 1) * BIN:<4} {total:>7,}{bar}{cut}{mark}")
    if any(early for _, early in counts.values()):
        lines.append("the accuracy of a guess that was dropped early is that on the few images it was given")
    return lines


def best_table(search: KeySearch, count: int = 10) -> Table:
    title = f"the best {min(count, len(search.guesses))} of {len(search.guesses):,} guesses"
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("guess", "from", "accuracy %", "95 % interval", "images"):
        table.add_column(name, justify="left" if name == "from" else "right", no_wrap=True)
    for guess in search.guesses[:count]:
        low, high = wilson(guess.correct, guess.images)
        table.add_row(
            str(guess.guess),
            markup(guess.origin),
            f"{100 * guess.accuracy:.2f}",
            f"{100 * low:.1f} to {100 * high:.1f}",
            str(guess.images) + ("" if guess.survived else ", dropped"),
        )
    return table


@dataclasses.dataclass(frozen=True)
class Cost:
    """Images transformed and classified, and seconds over all threads: of the race, of all to the end, and spent."""

    raced: int
    whole: int
    spent: int
    raced_seconds: float
    spent_seconds: float

    @property
    def saving(self) -> float:
        return self.whole / max(self.raced, 1)


def cost_of(search: KeySearch) -> Cost:
    return Cost(
        raced=sum(guess.stopped or guess.images for guess in search.guesses),
        whole=len(search.guesses) * search.n_images,
        spent=sum(guess.images for guess in search.guesses),
        raced_seconds=sum(guess.raced_seconds for guess in search.guesses),
        spent_seconds=sum(guess.seconds for guess in search.guesses),
    )


def cost(search: KeySearch) -> list[str]:
    spent = cost_of(search)
    lines = [
        f"spent: {spent.spent:,} images transformed and classified in {duration(spent.spent_seconds)}, summed over threads",
        f"race: {spent.raced:,} of {spent.whole:,} images decide every guess, {spent.saving:.1f} times fewer; a key of "
        f"{_percent(search.race_floor)} or better is lost with probability {search.race_error:g} at most",
    ]
    if spent.spent == spent.whole and spent.raced < spent.whole:
        ratio = spent.spent_seconds / max(spent.raced_seconds, 1e-9)
        lines.append(
            f"the race's part of that time: {duration(spent.raced_seconds)} of {duration(spent.spent_seconds)}, "
            f"{ratio:.1f} times less"
        )
    return lines


def verdict(search: KeySearch, found_at: Mapping[int, int]) -> list[str]:
    defence = search.defence
    lines = [_not_confirmed(search, guess) for guess in search.candidates if not search.reached(guess)]
    if not search.found:
        best = f"; the best has {_percent(search.guesses[0].accuracy)}" if search.guesses else ""
        told = f"not found: no guess reaches the defended accuracy of {_percent(search.defended_accuracy)}{best}"
        return [*lines, told]
    for guess in search.found:
        number = f", guess number {found_at[guess.guess]:,}" if guess.guess in found_at else ""
        lines.append(
            f"BROKEN by key search: with the key {guess.guess} ({guess.origin}{number}) {defence} has "
            f"{_percent(guess.accuracy)}, and {guess.fresh_correct} of {guess.fresh_images} fresh images right: its "
            f"defended accuracy. A key of {_percent(search.too_low)} or less would pass for it with probability "
            f"{search.race_error:g} at most"
        )
    lines.append(
        f"to go on with it: --save FOUND.key keeps it, then 'bench run --defence {defence} --attack pgd@guessed-key "
        "--key-guess FOUND.key' attacks the defended model through it"
    )
    return lines


def _not_confirmed(search: KeySearch, guess: KeyGuess) -> str:
    if guess.fresh_images is None:
        return f"the key {guess.guess} was never tried on fresh images: the same command does that"
    return (
        f"the key {guess.guess} ({guess.origin}) had {guess.correct} of {guess.images} images right, "
        f"and {guess.fresh_correct} of {guess.fresh_images} fresh ones: not the defended accuracy"
    )


def as_csv(search: KeySearch) -> str:
    return pd.DataFrame(_rows(search.guesses, search)).to_csv(index=False)


def as_json(search: KeySearch, found_at: Mapping[int, int]) -> str:
    spent = cost_of(search)
    fields = {f.name: getattr(search, f.name) for f in dataclasses.fields(search) if f.name != "guesses"}
    return json.dumps(
        {
            **fields,
            "origins": search.origins,
            "broken": bool(search.found),
            "found": [{"guess": str(g.guess), "number": found_at.get(g.guess)} for g in search.found],
            "cost": {**dataclasses.asdict(spent), "saving": spent.saving},
            "guesses": _rows(search.guesses, search),
        },
        indent=1,
        ensure_ascii=False,
    )


def _rows(guesses: Iterable[KeyGuess], search: KeySearch) -> list[dict[str, Any]]:
    """A guess is text: many programs would round a 64-bit number."""
    rows = []
    for guess in guesses:
        low, high = wilson(guess.correct, guess.images)
        rows.append(
            {
                "guess": str(guess.guess),
                "origin": guess.origin,
                "accuracy": guess.accuracy,
                "low": low,
                "high": high,
                "correct": guess.correct,
                "images": guess.images,
                "dropped_after": guess.stopped,
                "fresh_correct": guess.fresh_correct,
                "fresh_images": guess.fresh_images,
                "reached": search.reached(guess),
            }
        )
    return rows


def _bin(share: float) -> int:
    return min(int(100 * share / BIN), 100 // BIN - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
