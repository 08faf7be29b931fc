"""What a request means."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bench import plan, registry, spec
from bench.api import UsageError
from bench.evaluation import estimate


def test_seeds_belong_to_the_example() -> None:
    whole = plan.example_seeds(0, "cell", range(20))
    assert np.array_equal(whole[[7, 9, 12]], plan.example_seeds(0, "cell", [7, 9, 12]))
    assert len(np.unique(whole, axis=0)) == 20
    assert not np.array_equal(whole, plan.example_seeds(1, "cell", range(20)))
    assert not np.array_equal(whole, plan.example_seeds(0, "other", range(20)))


def names(*requests: str, defence: str, outside: bool = False) -> set[str]:
    plugin = registry.defence(defence, {})
    return {pair.name for pair in plan.pairs(requests, defence, plugin, plan.Choice(outside=outside))}


def test_requests() -> None:
    assert names("pgd", defence="none") == {"pgd@self"}
    assert names("pgd", defence="block-shuffle") >= {"pgd@nominal"}
    assert names("pgd@nominal", defence="block-shuffle") == {"pgd@nominal"}
    assert names("standard", defence="none") == {"pgd@self", "mt@self", "square@self", "aa@self"}
    ways_back = {f"{engine}@{source}" for engine in ("pgd", "mt", "aa") for source in ("self-smooth", "self-noise")}
    assert names("bpda", defence="jpeg-23") == {"pgd@self", "mt@self", "square@self", "aa@self"} | ways_back
    assert names("square", defence="jpeg-23") == {"square@self"}, "the others have its answers"
    assert names("square@self-smooth", defence="jpeg-23") == {"square@self-smooth"}
    assert names("pgd", "pgd", "all", defence="none") == names("all", defence="none")


def test_the_papers_preset_goes_back_through_jpeg_by_the_identity_alone() -> None:
    for defence in ("jpeg-23", "jpeg-10"):
        sources = {
            preset: {pair.source for pair in plan.requested(spec.resolve(preset), defence, ["all"])}
            for preset in ("paper", "laptop", "smoke")
        }
        assert sources["paper"] == {"self"}
        assert sources["laptop"] == {"self", "self-smooth", "self-noise"}
        assert sources["smoke"] == {"self", "self-smooth"}


def test_settings_over_the_preset() -> None:
    plugin = registry.defence("none", {})
    (pair,) = plan.pairs(["pgd[steps=7]"], "none", plugin, plan.Choice({"pgd": {"steps": 5, "restarts": 3}}))
    assert (pair.settings.steps, pair.settings.restarts) == (7, 3)


def test_one_engine_with_two_settings_is_two_pairs() -> None:
    plugin = registry.defence("none", {})
    assert len(plan.pairs(["pgd[steps=7]", "pgd[steps=8]", "pgd[steps=8]"], "none", plugin)) == 2


@pytest.mark.parametrize(
    ("request_", "defence", "said"),
    [
        ("pdg", "none", "unknown attack 'pdg': did you mean 'pgd'"),
        ("pgd@nominl", "block-shuffle", "unknown source 'nominl' against block-shuffle: did you mean 'nominal'"),
        ("pgd@self", "block-shuffle", "outside the threat model of block-shuffle: .*private key"),
        ("pgd@query", "block-shuffle", "outside the threat model of block-shuffle: .*no output of the defended model"),
        ("pgd@key-leaked", "jpeg-23", "unknown source 'key-leaked' against jpeg-23"),
        ("pgd@guessed-key", "block-shuffle", "needs a key to try: give it with --key-guess"),
        ("pgd@user:mine", "block-shuffle", "bring it with --source"),
        ("guessed-key", "block-shuffle", "guessed-key needs a key to try: give it with --key-guess"),
        ("own-models", "block-shuffle", "own-models: there is no such model; bring it with --source"),
        ("key-leaked", "jpeg-23", "key-leaked has no source against jpeg-23"),
        ("pba", "jpeg-23", "pba has no source against jpeg-23"),
        ("standard", "block-shuffle", "standard has no source against block-shuffle"),
        ("transfer@nominal", "block-shuffle", "transfer is a strategy"),
        ("pgd[steps=many]", "none", "steps is 'many'"),
        ("pgd[steps=0]", "none", "steps is 0"),
        ("pgd[rule=fast]", "none", "rule is"),
    ],
)
def test_requests_that_are_refused(request_: str, defence: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        names(request_, defence=defence)


@pytest.mark.parametrize("source", ["key-leaked", "key-leaked-bypass", "query"])
def test_outside_the_threat_model_by_permission_only(source: str) -> None:
    request = f"square@{source}"
    for refused in (request, source.removesuffix("-bypass")):
        with pytest.raises(UsageError, match="is outside the threat model of linac: "):
            names(refused, defence="linac")
    plugin = registry.defence("linac", {})
    (pair,) = plan.pairs([request], "linac", plugin, plan.Choice(outside=True))
    assert not pair.inside_threat_model
    assert pair.needs_key


def test_without_gradients_a_strategy_has_black_box_engines_only() -> None:
    assert names("query", defence="linac", outside=True) == {"square@query"}
    assert len(names("key-leaked", defence="linac", outside=True)) == 4


def test_all_leaves_out_what_goes_beyond_the_paper() -> None:
    assert names("all", defence="block-shuffle") < names("everything", defence="block-shuffle")
    more = names("everything", defence="block-shuffle") - names("all", defence="block-shuffle")
    assert {"pgd@bypass-ensemble", "pgd@ensemble", "mt@adapter:1", "aa@expectation:2", "boosted@nominal"} <= more
    assert names("everything", defence="jpeg-23") == names("all", "boosted", defence="jpeg-23")


ROLES = {
    "nominal": ("nominal",), "at-linf": ("at-linf",), "at-l2": ("at-l2",), "surrogate:2": ("surrogate",),
    "reconstruction:1": ("reconstruction",), "bypass": ("bypass",), "ensemble": None, "bypass-ensemble": None,
    "adapter:1": None, "expectation:2": None, "user:mine": None, "guessed-key": None, "key-leaked": None,
    "key-leaked-bypass": None, "query": None,
}  # fmt: skip
"""Whose recipes are part of what a source is: fixed, or stored results would be of other sources."""


@pytest.mark.parametrize("source", ROLES)
def test_a_source_is_what_it_is_by_these_recipes(source: str) -> None:
    plugin = registry.defence("linac", {})
    choice = plan.Choice(own_models=("user:mine",), guess=True, outside=True)
    (pair,) = plan.pairs([f"square@{source}"], "linac", plugin, choice)
    assert pair.description.recipes == ROLES[source]
    assert pair.needs_guess == (source == "guessed-key")
    paper = spec.resolve("paper")
    others = {"none": {"epochs": 1}, "surrogate:linac": {"epochs": 2}, "surrogate:jpeg-23": {"epochs": 3}}
    changed = dataclasses.replace(paper, recipes={**paper.recipes, **others})
    known = set(changed.recipes_of(pair.description.recipes, "linac"))
    roles = ROLES[source]
    of_roles = set() if roles is None else {"none", *roles, *(f"{role}:linac" for role in roles)} & set(changed.recipes)
    assert known == (set(changed.recipes) if roles is None else of_roles)


def test_the_defended_model_of_a_keyless_defence_is_a_source_that_nobody_trains() -> None:
    pairs = plan.pairs(["pgd"], "jpeg-23", registry.defence("jpeg-23", {}))
    assert [pair.source for pair in pairs] == ["self", "self-noise", "self-smooth"]
    for pair in pairs:
        assert (pair.description.recipes, pair.description.trained) == (("self",), False)


def test_sources_can_be_asked_for_without_an_engine() -> None:
    plugin = registry.defence("linac", {})
    choice = plan.Choice(strategies={"transfer": {"surrogates": 1, "adversarial": False}, "ensemble": {"members": ()}})
    everything = plan.sources(["all"], "linac", plugin, choice)
    assert [(offer.source, offer.strategy) for offer in everything] == [
        ("bypass", "pba"),
        ("nominal", "transfer"),
        ("surrogate:1", "transfer"),
    ]
    assert [offer.source for offer in plan.sources(["surrogate:4", "nominal", "nominal"], "linac", plugin, choice)] == [
        "nominal",
        "surrogate:4",
    ]
    with pytest.raises(UsageError, match="unknown source 'nominl' against linac: did you mean 'nominal'"):
        plan.sources(["nominl"], "linac", plugin)
    with pytest.raises(UsageError, match="the source query is outside the threat model of linac"):
        plan.sources(["query"], "linac", plugin)


def test_an_ensemble_is_its_members() -> None:
    plugin = registry.defence("linac", {})
    choice = plan.Choice(strategies={"ensemble": {"members": ("at-l2", "nominal")}})
    (pair,) = plan.pairs(["pgd@ensemble"], "linac", plugin, choice)
    assert [(m.source, m.description.kind, m.description.through) for m in pair.models] == [
        ("at-l2", "at-l2", ()),
        ("nominal", "nominal", ()),
    ]


def test_any_source_of_the_defence_can_be_a_member_and_others_are_refused_by_name() -> None:
    members = ("surrogate:2", "bypass", "reconstruction:1")
    choice = plan.Choice(strategies={"ensemble": {"members": members}})
    (pair,) = plan.pairs(["pgd@ensemble"], "linac", registry.defence("linac", {}), choice)
    assert tuple(model.source for model in pair.models) == members
    for request in ("ensemble", "everything"):
        with pytest.raises(UsageError, match="ensemble: 'reconstruction:1' cannot be a member here; give sources"):
            plan.pairs([request], "block-shuffle", registry.defence("block-shuffle", {}), choice)
    assert plan.pairs(["pgd@nominal"], "block-shuffle", registry.defence("block-shuffle", {}), choice)
    for outside in ("key-leaked", "query", "guessed-key"):
        given = plan.Choice(strategies={"ensemble": {"members": (outside,)}}, guess=True, outside=True)
        with pytest.raises(UsageError, match=f"ensemble: '{outside}' cannot be a member"):
            plan.pairs(["ensemble"], "linac", registry.defence("linac", {}), given)


def test_sources_the_preset_does_not_count_can_be_asked_for() -> None:
    assert names("mt@reconstruction:7", "pgd@surrogate:3", defence="linac") == {
        "mt@reconstruction:7",
        "pgd@surrogate:3",
    }
    with pytest.raises(UsageError, match="unknown source 'reconstruction:7' against block-shuffle"):
        names("mt@reconstruction:7", defence="block-shuffle")
    plugin = registry.defence("linac", {})
    counted = plan.Choice(strategies={"transfer": {"surrogates": 2, "adversarial": False}})
    assert [p.source for p in plan.pairs(["pgd"], "linac", plugin, counted)] == [
        "bypass", "nominal", "surrogate:1", "surrogate:2",
    ]  # fmt: skip


def test_a_kind_of_source_has_budgets_of_its_own() -> None:
    plugin = registry.defence("linac", {})
    choice = plan.Choice({"pgd": {"steps": 50}}, {"surrogate": {"pgd": {"steps": 5}}})
    found = plan.pairs(["pgd@surrogate:1", "pgd@nominal"], "linac", plugin, choice)
    assert {p.source: p.settings.steps for p in found} == {"surrogate:1": 5, "nominal": 50}


def reference_rows(preset: str, defence: str, *attacks: str, outside: bool = False) -> list[str]:
    found = plan.requested(spec.resolve(preset), defence, attacks, (), False, outside)
    assert all(pair.needs_key and not pair.inside_threat_model for pair in found if pair.reference)
    return [pair.name for pair in found if pair.reference]


def test_a_preset_may_leave_cells_out_of_all() -> None:
    by = spec.resolve("laptop")
    less = dataclasses.replace(by, left_out={"all": ["square@nominal"], "linac": ["aa@surrogate"], "none": ["mt@self"]})

    def meant(request: str, settings: spec.Spec) -> set[str]:
        return {pair.name for pair in plan.requested(settings, "linac", [request])}

    gone = {"square@nominal", "aa@surrogate:1", "aa@surrogate:2"}
    assert meant("all", by) - meant("all", less) == gone
    assert meant("everything", less) == meant("everything", by)
    assert meant("square@nominal", less) == {"square@nominal"}
    assert set(plan.required(by, *by.defence("linac"))) - set(plan.required(less, *less.defence("linac"))) == gone
    for odd, said in (("sqare@nominal", "did you mean 'square'"), ("square", "left_out has 'square'")):
        with pytest.raises(UsageError, match=said):
            meant("all", dataclasses.replace(by, left_out={"linac": [odd]}))


def test_all_has_the_reference_rows_of_the_preset_where_there_is_a_key() -> None:
    both = ["pgd@key-leaked", "square@query"]
    for preset in ("laptop", "smoke"):
        for defence in ("linac", "block-shuffle"):
            assert reference_rows(preset, defence, "all") == both
            assert reference_rows(preset, defence, "pgd@nominal", "everything") == both
            assert reference_rows(preset, defence, "pgd", "pba") == []
        for keyless in ("jpeg-23", "none"):
            assert reference_rows(preset, keyless, "all", "everything") == []
    assert reference_rows("paper", "linac", "all") == []
    assert reference_rows("laptop", "linac", "all", "pgd@key-leaked", outside=True) == ["square@query"], (
        "one was asked for"
    )
    laptop = spec.resolve("laptop")
    everything = plan.requested(laptop, "linac", ["all"])
    assert len(everything) == 8 * 4 + 2
    counted = [pair for pair in everything if pair.inside_threat_model]
    assert counted == plan.requested(dataclasses.replace(laptop, reference=()), "linac", ["all"])
    with pytest.raises(UsageError, match="is outside the threat model of linac"):
        plan.requested(laptop, "linac", ["all", "mt@key-leaked"])


def test_reference_rows_are_outside_the_threat_model() -> None:
    laptop = dataclasses.replace(spec.resolve("laptop"), reference=("pgd@nominal",))
    with pytest.raises(
        UsageError, match="preset laptop: reference names pgd@nominal, which is inside the threat model"
    ):
        plan.requested(laptop, "linac", ["all"])
    assert plan.requested(laptop, "linac", ["pgd@bypass"])


def test_reference_rows_cost_two_cores_a_minute_at_most() -> None:
    """At 65 gradients and 650 forward passes a second through the small LINAC's fit."""
    laptop = spec.resolve("laptop")
    found = [pair for pair in plan.requested(laptop, "linac", ["all"]) if pair.reference]
    counts = [estimate.budget(pair).times(laptop.examples * len(laptop.norms)) for pair in found]
    assert sum(count.gradients / 65 + count.queries / 650 for count in counts) <= 60
    assert all(count.transforms == count.gradients + count.queries for count in counts), "each goes through the defence"
