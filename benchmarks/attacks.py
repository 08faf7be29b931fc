"""Our attack engines beside Foolbox's, ART's and pyautoattack's: the same network, images, ball and steps.

    python -m benchmarks.attacks --model at.keras --ball linf:8/255 --what step pgd aa parts

Every contestant runs in a process of its own, with the threads its framework takes by default, one after the other
in the same run. The time to compile, load and warm up is not in the figures. With `--keep FOLDER` a contestant's result
is kept there, and a later run goes on from it. Needs the extra `benchmark`; `train_networks.py` makes the networks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

PARTS = ("apgd-ce", "apgd-t", "fab-t", "square")
CONTESTS: dict[str, tuple[str, ...]] = {
    "step": ("floor", "ours:step", "foolbox:step", "foolbox:step-compiled", "art:step"),
    "pgd": ("ours:pgd", "ours:mt", "foolbox:pgd", "art:pgd"),
    "aa": ("ours:aa", "pyautoattack:aa"),
    "rules": (
        "ours:adam-drops-0.1",
        "ours:adam-cosine-0.1",
        *(f"ours:sign-{rest}" for rest in ("drops-0.25", "drops-0.5", "drops-1", "cosine-0.5", "cosine-2", "linear-2")),
    ),  # step rule, schedule, and the first step: of a pixel value for Adam, of epsilon for the other
    "parts": tuple(f"{who}:{part}" for part in PARTS for who in ("ours", "pyautoattack")),
}
STEPS, RESTARTS = 20, 10  # of the contest of strength; 200 gradients per example for everybody
SPEED_STEPS = 40
RULE_STEPS, RULE_RESTARTS = 20, 2  # of the contest of step rules

Attack = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""images (N×H×W×C) and labels (N) to adversarial images."""


def ours(what: str, model: Any, norm: str, epsilon: float, seed: int) -> tuple[Attack, Attack]:
    """The attack, and a short form of it that compiles all it needs."""
    from attacks.engines import autoattack, multi_targeted, pgd
    from bench.api import Batch, ModelSource

    exact = what != "step"  # a step of a descent that nothing leaves
    source = ModelSource("model", lambda images: model(images, training=False), exact=exact)

    def run(engine: Any) -> Attack:
        def attack(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
            seeds = np.stack([np.arange(len(labels)), np.full(len(labels), seed)], axis=1).astype(np.int32)
            batch = Batch(images, labels, seeds, norm, epsilon, batch_size=100)
            return engine.run(source, batch, lambda _: None).images

        return attack

    if what in ("aa", *PARTS):
        parts = () if what == "aa" else (what,)
        short = autoattack.AutoAttackSettings(parts=parts, cascade=False, steps=2, queries=30, targets=1)
        full = autoattack.AutoAttackSettings(parts=parts)
        return run(autoattack.AutoAttack(full)), run(autoattack.AutoAttack(short))
    rule, *schedule = what.split("-")
    if rule in ("adam", "sign"):
        first = {{"adam": "learning_rate", "sign": "step_size"}[rule]: float(schedule[1]), "schedule": schedule[0]}
        engine = pgd.Pgd(pgd.PgdSettings(steps=RULE_STEPS, restarts=RULE_RESTARTS, rule=rule, **first))
        return run(engine), run(engine)
    engines = {
        "step": pgd.Pgd(pgd.PgdSettings(steps=SPEED_STEPS, restarts=1)),
        "pgd": pgd.Pgd(pgd.PgdSettings(steps=STEPS, restarts=RESTARTS)),
        "mt": multi_targeted.MultiTargeted(
            multi_targeted.MultiTargetedSettings(steps=STEPS * RESTARTS // 9, restarts=1, targets=9)
        ),
    }
    return run(engines[what]), run(engines[what])


def floor(model: Any, norm: str, epsilon: float) -> tuple[Attack, Attack]:
    """As many bare forward and backward passes as an attack of SPEED_STEPS steps needs."""
    import tensorflow as tf

    from attacks.parts import losses
    from bench.api import ModelSource

    source = ModelSource("model", lambda images: model(images, training=False))

    @tf.function(input_signature=[tf.TensorSpec([None, 32, 32, 3]), tf.TensorSpec([None], tf.int32)])
    def passes(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        def one(step: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return step + 1, source.gradient(losses.margin, images, labels).gradient

        return tf.while_loop(lambda step, _: step < SPEED_STEPS, one, (0, tf.zeros_like(images)))[1]

    def attack(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        passes(images, labels).numpy()
        return images

    return attack, attack


def foolbox(what: str, model: Any, norm: str, epsilon: float, seed: int) -> tuple[Attack, Attack]:
    """Given the Keras model itself, as its documentation has it, or (which helps it) a compiled forward pass."""
    import foolbox as fb
    import tensorflow as tf

    steps, restarts = (STEPS, RESTARTS) if what == "pgd" else (SPEED_STEPS, 1)
    forward = model if what == "step" else tf.function(lambda images: model(images, training=False))
    wrapped = fb.models.TensorFlowModel(forward, bounds=(0, 1))
    tf.random.set_seed(seed)
    kind = {"linf": fb.attacks.LinfPGD, "l2": fb.attacks.L2PGD}[norm]

    def attack(images: np.ndarray, labels: np.ndarray, steps: int = steps) -> np.ndarray:
        method = kind(steps=steps, rel_stepsize=2.5 / steps).repeat(restarts)
        return method(wrapped, tf.constant(images), tf.constant(labels, tf.int64), epsilons=epsilon)[1].numpy()

    return attack, lambda images, labels: attack(images, labels, 2)


def art(what: str, model: Any, norm: str, epsilon: float, seed: int) -> tuple[Attack, Attack]:
    import keras
    from art.attacks.evasion import ProjectedGradientDescentTensorFlowV2
    from art.estimators.classification import TensorFlowV2Classifier

    steps, restarts = (SPEED_STEPS, 1) if what == "step" else (STEPS, RESTARTS)
    np.random.seed(seed)  # its random starts
    classifier = TensorFlowV2Classifier(
        model=model, nb_classes=model.output_shape[-1], input_shape=model.input_shape[1:], clip_values=(0, 1),
        loss_object=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )  # fmt: skip

    def attack(images: np.ndarray, labels: np.ndarray, steps: int = steps) -> np.ndarray:
        method = ProjectedGradientDescentTensorFlowV2(
            classifier, norm={"linf": np.inf, "l2": 2}[norm], eps=epsilon, eps_step=2.5 * epsilon / steps,
            max_iter=steps, num_random_init=restarts, batch_size=len(images), verbose=False,
        )  # fmt: skip
        return method.generate(images, labels)

    return attack, lambda images, labels: attack(images, labels, 2)


def pyautoattack(what: str, model: Any, norm: str, epsilon: float, seed: int) -> tuple[Attack, Attack]:
    import torch
    from pyautoattack import AutoAttack

    from benchmarks.carry import Carried

    network = Carried(model)

    def attack(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        adversary = AutoAttack(network, norm={"linf": "Linf", "l2": "L2"}[norm], eps=epsilon, seed=seed)
        if what != "aa":
            adversary.attacks_to_run = [what]
        x = torch.tensor(images).permute(0, 3, 1, 2).contiguous()
        found = adversary.run_standard_evaluation(x, torch.tensor(labels).long(), batch_size=len(images))[0]
        return found.permute(0, 2, 3, 1).contiguous().numpy()

    def warm(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            ours = model(images, training=False).numpy()
            theirs = network(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-3, err_msg="the weights were not carried over right")
        return images

    return attack, warm


def contend(name: str, ball: str, given: argparse.Namespace) -> dict[str, Any]:
    """One contestant, in this process: its seconds and which examples withstood it."""
    norm, _, size = ball.partition(":")
    epsilon = float(Fraction(size))
    who, _, what = name.partition(":")
    if who in ("ours", "floor"):
        from bench.support import devices

        devices.configure()
    import keras

    from bench.data import datasets

    model = keras.models.load_model(given.model, compile=False)
    split = datasets.load(given.data).examples(given.first + given.images)
    images, labels = split.unit()[given.first :], split.labels[given.first :]
    builders: dict[str, Any] = {"ours": ours, "foolbox": foolbox, "art": art, "pyautoattack": pyautoattack}
    wanted = (what, model, norm, epsilon, given.seed)
    attack, warm = floor(model, norm, epsilon) if who == "floor" else builders[who](*wanted)
    warm(images[:2], labels[:2])
    began, worked = time.perf_counter(), time.process_time()
    found = attack(images, labels)
    spent = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - worked}
    return {"name": name, **spent, **judged(model, images, labels, found, norm, epsilon)}


def judged(
    model: Any, images: np.ndarray, labels: np.ndarray, found: np.ndarray, norm: str, epsilon: float
) -> dict[str, Any]:
    """The same judge for everybody: what is out of the ball or the range counts as withstood."""
    from bench import norms

    size = norms.named(norm).distance(images, found)
    legal = (size <= epsilon + 1e-5) & (found.min(axis=(1, 2, 3)) >= 0) & (found.max(axis=(1, 2, 3)) <= 1)
    clean = np.argmax(model.predict(images, verbose=0), axis=1) == labels
    right = np.argmax(model.predict(found, verbose=0), axis=1) == labels
    robust = clean & (right | ~legal)
    return {"largest": float(size.max()), "clean": int(clean.sum()), "robust": np.flatnonzero(robust).tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Keras classifier of images in [0,1] (.keras), giving logits")
    parser.add_argument("--ball", nargs="+", default=["linf:8/255"], help="norm:epsilon, e.g. linf:8/255 l2:0.5")
    parser.add_argument("--what", nargs="+", default=["step", "pgd", "aa", "parts"], choices=[*CONTESTS, "ratio"])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first of the test images to attack")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn at random")
    parser.add_argument("--data", default="cifar10", help="cifar10, or an .npz of images and labels")
    parser.add_argument("--only", nargs="+", help="only these of a contest, e.g. apgd-ce ours:fab-t")
    parser.add_argument("--repeats", type=int, default=1, help="run each contest so often, and give the median times")
    parser.add_argument("--keep", type=Path, help="a folder for the results; what is there is not run again")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(contend(given.one, given.ball[0], given)))
        return
    for ball in given.ball:
        for what in given.what:
            ratio(given, ball) if what == "ratio" else table(what, given, ball)


def table(what: str, given: argparse.Namespace, ball: str) -> None:
    """Runs one contest and prints it as Markdown."""
    print(f"\n{what}: {os.path.basename(given.model)}, {ball}, {given.images} images\n")
    print("| attack | seconds | CPU seconds | robust | only here robust |\n" + "| --- " * 5 + "|", flush=True)
    names = [n for n in CONTESTS[what] if not given.only or {n, n.partition(":")[2]} & set(given.only)]
    # Repeats go round all contestants, so that a disturbance does not hit one of them alone.
    rounds = [[kept(name, ball, given, repeat) for name in names] for repeat in range(given.repeats)]
    reference: set[int] | None = None
    for name, *results in zip(names, *rounds, strict=True):
        if any("failed" in found for found in results):
            print(f"| {name} | failed: {results[0]['failed']} | | | |", flush=True)
            continue
        robust = set(results[0]["robust"])
        if name.startswith("ours") and (what not in ("pgd", "rules") or reference is None):
            reference = robust
        both = reference if reference is not None else robust
        only = f"{len(robust - both)} (ours only: {len(both - robust)})"
        seconds, cpu = (statistics.median(found[key] for found in results) for key in ("seconds", "cpu"))
        print(f"| {name} | {seconds:.1f} | {cpu:.1f} | {len(robust)} of {results[0]['clean']} | {only} |", flush=True)


def ratio(given: argparse.Namespace, ball: str, rounds: int = 8) -> None:
    """A step of our PGD against the bare passes, turn by turn in this process, so that a disturbance hits both."""
    from bench.support import devices

    devices.configure()
    import keras

    from bench.data import datasets

    norm, _, size = ball.partition(":")
    model = keras.models.load_model(given.model, compile=False)
    split = datasets.load(given.data).examples(given.images)
    contestants = [
        floor(model, norm, float(Fraction(size)))[0],
        ours("step", model, norm, float(Fraction(size)), given.seed)[0],
    ]
    times = []
    for _ in range(rounds + 1):  # the first compiles
        spent = []
        for attack in contestants:
            began = time.perf_counter()
            attack(split.unit(), split.labels)
            spent.append(time.perf_counter() - began)
        times.append(spent[1] / spent[0])
    print(
        f"\nratio: {os.path.basename(given.model)}, {ball}, {given.images} images, {SPEED_STEPS} steps, {rounds} rounds"
    )
    print(
        f"our PGD against the bare passes: {statistics.median(times[1:]):.3f} ({min(times[1:]):.2f} to {max(times[1:]):.2f})"
    )


def kept(name: str, ball: str, given: argparse.Namespace, repeat: int) -> dict[str, Any]:
    """A contestant's result: the one that is kept, or that of a process of its own."""
    label = f"{Path(given.model).stem} {ball} {name} {given.first}+{given.images} {repeat}"
    label += f" seed {given.seed}" * bool(given.seed)
    path = given.keep / (label.replace("/", "_").replace(":", "-").replace(" ", ".") + ".json") if given.keep else None
    if path and path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    command = [sys.executable, "-m", "benchmarks.attacks", "--model", given.model, "--ball", ball]
    command += ["--one", name, "--data", given.data]
    command += ["--images", str(given.images), "--first", str(given.first), "--seed", str(given.seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return found


if __name__ == "__main__":
    main()
