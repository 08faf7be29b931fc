"""A key search from what is asked for to stored scores: checked first, and only then scored and written.

This is what `bench keysearch` calls, and what any other way to start a search should.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sqlalchemy.engine import Engine as Database

from bench.keysearch import driver
from bench.keysearch.driver import Sample, SearchDriver, Target
from bench.keysearch.race import Race
from bench.keysearch.request import SearchRequest
from bench.store.key_searches import KeySearch
from bench.support.progress import Reporter


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A search that can be begun: its target is there, and its race can tell the right key."""

    request: SearchRequest
    target: Target
    sample: Sample
    race: Race


@dataclasses.dataclass(frozen=True)
class Searched:
    """The search with every guess so far, how many were scored now, and the numbers of those that break the defence."""

    search: KeySearch
    scored: int
    found_at: Mapping[int, int]


def prepared(request: SearchRequest) -> Prepared:
    """Whatever cannot be searched for is refused here, before anything is written."""
    target = driver.find_target(request.spec, request.defence, request.key_name, request.classifier)
    if request.as_the_paper:
        sample = driver.paper_sample(target.dataset)
    else:
        sample = driver.training_sample(target.dataset, request.images, request.seed)
    return Prepared(request, target, sample, driver.rules(target, sample, request.slack, request.error))


def searched(ready: Prepared, database: Database, command: str, reporter: Reporter) -> Searched:
    """Scores the guesses that are not stored yet."""
    request = ready.request
    search = SearchDriver(database, ready.target, ready.sample, ready.race, command, request.to_the_end)
    scored = search.run(request.guesses(), request.count, reporter, request.stop_when_found)
    return Searched(search.stored(), scored, search.found_at)
