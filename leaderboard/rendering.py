"""How templates become pages: Jinja2 with autoescape, and the filters that say numbers and names."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2

from bench.store import coverage, ranking
from leaderboard import paper, words


def environment() -> jinja2.Environment:
    """Templates of the pages; an unknown name in one is an error."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters |= {
        "share": words.share,
        "interval": words.interval,
        "epsilon": words.epsilon,
        "settings": words.settings,
        "norm": words.norm,
        "thousands": words.thousands,
        "plural": words.plural,
        "coverage": coverage.said,
        "why": ranking.why,
        "pretty": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
    }
    templates.globals |= {"words": words, "paper": paper, "citation": paper.CITATION, "bound": coverage.BOUND}
    return templates
