"""How things are said on the pages: numbers, names, and what each word means."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from bench import norms
from bench.store.frames import percent
from bench.support.stats import wilson

STRATEGY_NAMES = {
    "transfer": "Transfer",
    "bpda": "BPDA",
    "pba": "Bypass (PBA)",
    "standard": "Standard",
    "ensemble": "Ensemble",
    "pba-ensemble": "Bypass ensemble",
    "adapter": "Adapter",
    "expectation": "Expectation",
    "own-models": "Given models",
    "guessed-key": "Guessed key",
    "key-leaked": "Leaked key",
    "query": "Queries",
}

ENGINES = {
    "pgd": "projected gradient descent: many small steps along the source's gradient, from several random starts",
    "mt": "multi-targeted: gradient steps towards every other class in turn",
    "square": "Square: random squares, kept when they help; it needs no gradient",
    "aa": "AutoAttack: four attacks in a row, the usual reference",
    "apgd-ce": "a part of AutoAttack: gradient steps of adaptive size on the cross-entropy",
    "apgd-dlr": "gradient steps of adaptive size on the difference-of-logits ratio",
    "apgd-t": "a part of AutoAttack: gradient steps of adaptive size towards each target class",
    "fab": "looks for the smallest perturbation that crosses the boundary",
    "fab-t": "a part of AutoAttack: looks for the smallest perturbation towards each target class",
    "boosted": "gradient steps made to carry over to other models: momentum, varied and shifted inputs",
}

SOURCES = {
    "nominal": "the attacker's own network without any defence",
    "at-linf": "the attacker's own network, adversarially trained in L∞",
    "at-l2": "the attacker's own network, adversarially trained in L2",
    "surrogate": "the same defence, trained by the attacker with keys of their own",
    "reconstruction": "the defence turned into a reconstruction of the image, with attacker keys (BPDA)",
    "bypass": "the defended classifier itself, reached past the transform by a learned stand-in (PBA)",
    "self": "the defended model itself",
    "ensemble": "the attacker's plain networks attacked as one, by the mean of their logits",
    "bypass-ensemble": "several bypasses attacked as one",
    "adapter": "the transform under an attacker's key, a learned adapter, then the defended classifier",
    "expectation": "the mean over models trained under several attacker keys",
    "guessed-key": "the defended classifier under a key that the attacker has found",
    "key-leaked": "the defended model with its private key: outside the threat model",
    "key-leaked-bypass": "forward with the private key, backward through the bypass: outside the threat model",
    "query": "the defended model as a service that answers with logits: outside the threat model",
}

IMPORTED = {
    "judged": "made elsewhere, and judged again here, image by image",
    "unjudged": "made elsewhere, and not judged here, as its weights or its key are not here: counts towards nothing",
}

SOURCE_ORDER = tuple(SOURCES)
"""In which order sources stand in tables; others follow by name."""

STRATEGIES = {
    "transfer": "make the image on a model of the attacker's own, and hope that it carries over",
    "bpda": "go forward through the transform, and backward through a simpler one",
    "pba": "learn a stand-in for the transform, and attack the classifier through it",
    "standard": "attack the defended model directly, with everything known",
    "ensemble": "attack several own models as one",
    "pba-ensemble": "learn several stand-ins, and attack through all of them",
    "adapter": "use an attacker's key, and learn to make up for it",
    "expectation": "average over attacker keys",
    "own-models": "attack models that the user gave",
    "guessed-key": "search for the key first, then attack with what was found",
}


def share(count: int | None, total: int) -> str:
    """A count of examples as percent, rounded as `bench results` does."""
    return "–" if count is None or not total else f"{percent(count / total):.2f}"


def interval(count: int | None, total: int) -> str:
    """The 95 % Wilson interval in percent."""
    if count is None or not total:
        return ""
    low, high = wilson(count, total)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def bounds(count: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval as two percentages."""
    low, high = wilson(count, total)
    return 100 * low, 100 * high


def epsilon(value: float) -> str:
    """8/255 where it is a whole number of grey levels below 255, else the number."""
    levels = value * 255
    return f"{round(levels)}/255" if 1 <= levels < 255 and abs(levels - round(levels)) < 1e-9 else f"{value:g}"


def settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def norm(name: str) -> str:
    """What people read for a norm."""
    return norms.label(name)


def strategy(name: str) -> str:
    return STRATEGY_NAMES.get(name, name)


def thousands(count: int) -> str:
    return f"{count:,}"


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def slug(name: str, *identity: Any) -> str:
    """A file name for something of any name: readable, safe, and its own by a digest of what it is."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    digest = hashlib.sha256(repr((name, *identity)).encode()).hexdigest()[:8]
    return f"{readable}-{digest}" if readable else digest


def family(source: str) -> tuple[str, int] | None:
    """('surrogate', 3) for `surrogate:3`; None for a source that stands alone."""
    found = re.fullmatch(r"(.+):(\d+)", source)
    return (found[1], int(found[2])) if found else None


def distinct(names: dict[int, str]) -> dict[int, str]:
    """Names by id; the same name again (another training of a source, say) gets a number."""
    told: dict[int, str] = {}
    for identity in sorted(names):
        name, extra = names[identity], 2
        while name in told.values():
            name, extra = f"{names[identity]} ({extra})", extra + 1
        told[identity] = name
    return told
