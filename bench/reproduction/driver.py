"""Runs what a reproduction needs and is not stored yet: attacks as `bench run` does, guesses as `bench keysearch`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sqlalchemy.engine import Engine as Database

from bench import plan
from bench.api import BenchError
from bench.evaluation import contest
from bench.evaluation.contest import Contest
from bench.evaluation.run import Run
from bench.keysearch import driver as search_driver
from bench.keysearch.guesses import PaperGenerator
from bench.keysearch.race import Race
from bench.keysearch.request import ERROR, SLACK
from bench.plan import Pair
from bench.reproduction import contents
from bench.reproduction.contents import LINAC, Need
from bench.reproduction.results import Results
from bench.reproduction.sizes import sizes, spec_for
from bench.spec import Spec
from bench.support.fingerprint import fingerprint
from bench.support.progress import Reporter
from bench.vault.base import Vault


class Driver:
    """One call of `bench reproduce`. What fails is written down, and does not stop the rest."""

    def __init__(
        self,
        database: Database,
        spec: Spec,
        key: Vault,
        work: Run,
        reporter: Reporter,
        *,
        may_train: bool,
        command: str,
    ) -> None:
        self._db, self._spec, self._key, self._work = database, spec, key, work
        self._reporter, self._may_train, self._command = reporter, may_train, command
        self._sizes = sizes(spec)
        self.results = Results(database, spec.norms)

    def run(self, names: Sequence[str]) -> None:
        """Everything these tables and figures need, one defended model after the other."""
        needs = list(dict.fromkeys(need for name in names for need in contents.needs(name, self._sizes)))
        models: dict[str, list[Need]] = {}
        for need in needs:
            models.setdefault(self._identity(need.defence, need.sweep), []).append(need)
        planned = [
            (own, self._pairs(own)) for own in models.values()
        ]  # what cannot be asked for is refused before it runs
        for own, pairs in planned:
            requests = list(dict.fromkeys(need.defence for need in own))
            try:
                ready = self._prepared(requests[0], own[0].sweep)
            except BenchError as error:
                self._failed(", ".join(requests), error)
                continue
            for cell in self._work.execute(ready, pairs):
                board, attack, source = cell.key
                known = {} if cell.pair is None else {(cell.pair.engine, cell.pair.source): (attack, source)}
                for request in requests:
                    self.results.add(request, cell.norm, board, known)
        if any(name in contents.KEY_SEARCH for name in names):
            self._search()

    def _identity(self, request: str, sweep: bool) -> str:
        """What makes two requests the same defended model: linac[frequencies=5] may be linac itself."""
        spec = spec_for(self._spec, sweep)
        name, defence = spec.defence(request)
        return fingerprint([name, defence.settings, spec.recipes])

    def _pairs(self, needs: Sequence[Need]) -> list[Pair]:
        spec = spec_for(self._spec, needs[0].sweep)
        attacks = dict.fromkeys(f"{need.engine}@{need.source}" for need in needs)
        return plan.requested(spec, needs[0].defence, list(attacks))

    def _prepared(self, request: str, sweep: bool) -> Contest:
        spec, say = spec_for(self._spec, sweep), self._reporter.say
        return contest.prepare(spec, request, self._key, None, self._may_train, say, command=self._command)

    def _failed(self, what: str, error: BenchError) -> None:
        self.results.failed[what] = str(error)
        self._reporter.say(f"failed: {what}: {error}")

    def _search(self) -> None:
        """The keys of Figure 2, scored as the paper did: on test images, each to the end."""
        try:
            self._prepared(LINAC, False)  # it is trained here or not at all: a search never has the key
            target = search_driver.find_target(spec_for(self._spec, False), LINAC, self._key.id)
            sample = search_driver.paper_sample(target.dataset)
            floor = max(target.accuracy - SLACK, 1 / len(target.dataset.classes))
            race = Race(floor, ERROR, len(sample.images))
            search = search_driver.SearchDriver(self._db, target, sample, race, self._command, to_the_end=True)
            guesses = PaperGenerator()
            count = min(self._sizes.guesses, len(guesses))
            search.run(itertools.islice(guesses, count), count, self._reporter, stop_when_found=False)
            self.results.search = search.stored()
        except BenchError as error:
            self._failed("the key search", error)
