"""An estimate of GPU hours for the paper's protocol on LINAC, from counts of operations. Nothing is run.

python -m benchmarks.gpu_hours

The counts of passes are those of `bench plan`; the operations of a pass are those of its matrix products and
convolutions; a GPU is assumed to reach the share of its peak that is given beside it.
"""

from __future__ import annotations

from bench import plan, registry, spec
from bench.api import SourceDescription
from bench.evaluation import estimate
from bench.evaluation.calibration import defended, recipe_of
from bench.evaluation.estimate import Count
from bench.models.architecture import Architecture

# Peak of dense float32 products (TF32 where the GPU has it), in 10^12 operations per second, and the share assumed.
GPUS = {"V100": (15.7, 0.60), "A100": (156.0, 0.35), "H100": (495.0, 0.30)}
IMAGES = 50_000


def operations_of(network: Architecture) -> float:
    """Of a forward pass on one 32×32 image."""
    return 2.0 * network.cost((32, 32, 3), 10)


def fit(hidden: int = 256, layers: int = 5, inputs: int = 20, steps: int = 320, pixels: int = 32) -> float:
    """Operations of one LINAC fit: forward, and backward at twice that, at every step."""
    weights = inputs * hidden + (layers - 1) * hidden**2 + 3 * hidden
    return 2.0 * 3 * weights * pixels * steps


def operations(stage: str, network: Architecture) -> tuple[float, float]:
    """Of a query and of a gradient: backward to the input costs as much as forward, through a fit four times as much.

    A reconstruction is not gone back through: its backward pass is the identity.
    """
    forward, fits = operations_of(network), {"defence": 5, "reconstruction": 1}.get(stage, 0)
    return forward + fit() * bool(fits), 2 * forward + fit() * fits


def hours(total: float, gpu: str) -> float:
    peak, share = GPUS[gpu]
    return total / (peak * 1e12 * share) / 3600


def main() -> None:
    paper = spec.resolve("paper")
    defence = registry.defence("linac", paper.defences.get("linac", {}))
    choice = plan.Choice(paper.engines, paper.budgets, paper.strategies("linac"))
    pairs = plan.pairs(["transfer", "bpda", "pba"], "linac", defence, choice)
    examples = paper.examples * len(paper.norms)
    spent: dict[tuple[str, str], float] = {}
    counts: dict[tuple[str, str], Count] = {}
    for pair in pairs:
        stage, once = _stage(pair.description), estimate.budget(pair)
        query, gradient = operations(stage, recipe_of(paper, "linac", pair.description).network)
        judged = operations_of(recipe_of(paper, "linac", defended("linac")).network) + fit()
        line = (pair.engine, stage)
        spent[line] = spent.get(line, 0.0) + examples * (once.gradients * gradient + once.queries * query + judged)
        counts[line] = counts.get(line, Count()) + once.times(examples) + Count(transforms=examples)
    print(
        f"{'engine':<8}{'source':<16}{'gradients':>16}{'queries':>18}{'fits':>18}" + "".join(f"{g:>12} h" for g in GPUS)
    )
    for (engine, stage), total in sorted(spent.items(), key=lambda item: -item[1]):
        count = counts[engine, stage]
        print(f"{engine:<8}{stage:<16}{count.gradients:>16,}{count.queries:>18,}{count.transforms:>18,}"
              + "".join(f"{hours(total, g):>14,.0f}" for g in GPUS))  # fmt: skip
    print(f"{'all attacks':<76}" + "".join(f"{hours(sum(spent.values()), g):>14,.0f}" for g in GPUS))
    sources = {pair.source: pair.description for pair in pairs}
    trained = sum(_training(paper, source) for source in (defended("linac"), *sources.values()))
    print(f"{'training, if nothing is there yet':<76}" + "".join(f"{hours(trained, g):>14,.0f}" for g in GPUS))


def _stage(source: SourceDescription) -> str:
    """What is before the source's network."""
    return " and ".join(source.through) or "plain"


def _training(paper: spec.Spec, source: SourceDescription) -> float:
    """Operations of a training: forward and backward at twice that, with a fit per image and epoch where there is one."""
    recipe, stage = recipe_of(paper, "linac", source), _stage(source)
    attack = 2 * recipe.adversary.steps if recipe.adversary else 0
    each = (3 + attack) * operations_of(recipe.network) + fit() * (stage in ("defence", "reconstruction"))
    return float(recipe.epochs * IMAGES * each)


if __name__ == "__main__":
    main()
