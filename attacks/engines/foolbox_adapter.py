"""Any Foolbox attack as an engine: `foolbox:LinfDeepFoolAttack` (extra `foolbox`).

Foolbox draws for a whole batch from one generator, so it is given one example at a time with a seed of its own: slower,
but batches and shards change nothing. Its verdict is not used; the images are judged like everybody's.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import random
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from attacks.parts import draws
from attacks.parts.compiling import compiled
from attacks.parts.engine import BatchEngine, Task, forward, positive
from attacks.parts.ledger import clean_margin
from bench.api import Engine, Norm, Source, UsageError

PREFIX = "foolbox:"


@dataclasses.dataclass(frozen=True)
class FoolboxSettings:
    """How a Foolbox attack runs."""

    steps: int = 0
    """Its number of steps; 0 leaves it what Foolbox makes it."""
    restarts: int = 1

    def __post_init__(self) -> None:
        positive(self, steps=0, restarts=1)


class FoolboxEngine(BatchEngine):
    """An attack of Foolbox, by its class name there."""

    Settings = FoolboxSettings
    in_all = False
    needs_gradient = True
    attack_name: ClassVar[str]

    def attack(self, task: Task) -> None:
        model, calls = _model(task.source)
        for row in task.rows():
            image, label = task.images[row : row + 1], task.labels[row : row + 1]
            before = calls()
            for restart in range(self.settings.restarts):
                _seed(draws.fold(task.seeds[row : row + 1], restart)[0])
                found = self._found(task, model, image, label)
                margin = clean_margin(forward(task.source, found), label)
                task.ledger.offer(np.array([row]), found, margin, restart)
            # Foolbox does not say which of its passes had a gradient: all are counted as queries.
            task.ledger.spend(np.array([row]), queries=calls() - before + self.settings.restarts)
            task.progress.reach((row + 1) / len(task.labels))

    def _found(self, task: Task, model: Any, image: np.ndarray, label: np.ndarray) -> np.ndarray:
        # Labels of the type Foolbox's predictions have: its tensors cannot join two types under NumPy 2.
        labels = tf.constant(label, tf.int64)
        method = self._method(task.ball.norm)
        found = method(model, tf.constant(image), labels, epsilons=float(task.epsilon))[1]
        finite = tf.where(tf.math.is_finite(found), found, image)
        return task.ball.project(finite, tf.constant(image), tf.constant(task.epsilon)).numpy()

    def _method(self, norm: Norm) -> Any:
        kind = attack_class(self.attack_name)
        options = {"steps": self.settings.steps} if self.settings.steps else {}
        if options and "steps" not in inspect.signature(kind).parameters:
            raise UsageError(f"{PREFIX}{self.attack_name} has no steps: leave the setting out")
        try:
            method = kind(**options)
        except (TypeError, ImportError) as error:
            raise UsageError(f"{PREFIX}{self.attack_name} cannot be made from its name alone: {error}") from error
        order = getattr(getattr(method, "distance", None), "p", None)
        if order is not None and order != norm.order:
            raise UsageError(
                f"{PREFIX}{self.attack_name} works in the norm of order {order}: it has no {norm.name} form"
            )
        return method


def engine(name: str) -> type[Engine]:
    """The engine class of `foolbox:NAME`."""
    attack = name.removeprefix(PREFIX)
    kind = attack_class(attack)
    summary = (inspect.getdoc(kind) or attack).split("\n")[0]
    return type(attack, (FoolboxEngine,), {"attack_name": attack, "__doc__": f"Foolbox's {attack}: {summary}"})


def attack_class(name: str) -> type:
    """The Foolbox attack of this name."""
    try:
        import foolbox
    except ImportError as error:
        raise UsageError(f"{PREFIX}{name} needs Foolbox: pip install 'bench-keyed-defences[foolbox]'") from error
    found = getattr(foolbox.attacks, name, None)
    if not (isinstance(found, type) and issubclass(found, foolbox.Attack)) or inspect.isabstract(found):
        known = [other for other in dir(foolbox.attacks) if other[0].isupper()]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f": did you mean {PREFIX}{close[0]}?" if close else ""
        raise UsageError(f"Foolbox has no attack {name!r}{hint}")
    return found


def _model(source: Source) -> tuple[Any, Callable[[], int]]:
    """The source as a Foolbox model, and how often it was called."""
    import foolbox

    count = 0

    def call(images: tf.Tensor) -> tf.Tensor:
        nonlocal count
        count += len(images)
        return compiled(source, "foolbox", source.logits, images)

    return foolbox.models.TensorFlowModel(call, bounds=(0, 1)), lambda: count


def _seed(seed: np.ndarray) -> None:
    """Sets every generator that Foolbox draws from."""
    number = int(seed.view(np.uint32)[0])
    tf.random.set_seed(number)
    np.random.seed(number)
    random.seed(number)
