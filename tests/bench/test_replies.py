"""Wrong replies of attacks, by mistake and by malice: each fails its cell with one line, and all others finish."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from bench.api import Attacked, BenchError
from bench.executors import codec, local, replies
from bench.executors.base import AttackTask, Limits, Outcome
from bench.executors.channel import Channel, Frame, Malformed
from bench.executors.local import LocalPool
from bench.executors.messages import Message, TaskFinished
from bench.executors.pool import PoolExecutor
from bench.store.database import url_of
from bench.support.text import one_line, several_lines
from tests import packages
from tests.processes import bench

SHAPE = (2, 4, 4, 3)


def honest(shape: tuple[int, ...] = SHAPE) -> Attacked:
    count = shape[0]
    whole = np.zeros(count, np.int64)
    return Attacked(
        np.zeros(shape, np.float32), whole == 1, whole.astype(np.float32), whole, whole, whole, whole, flags={"a": 1}
    )


def changed(name: str, value: Any) -> Attacked:
    return dataclasses.replace(honest(), **{name: value})


PACKAGE = '''
import gc, os, socket, sys
from pathlib import Path
import numpy as np
from bench.api import Attacked, Engine

def answer(batch, **changed):
    zeros = np.zeros(len(batch.labels), np.int64)
    fields = {"images": batch.images, "success": zeros == 1, "margin": zeros.astype(np.float32), "restart": zeros,
              "target": zeros, "gradients": zeros, "queries": zeros}
    return Attacked(**{**fields, **changed})

class Replying(Engine):
    """Gives back what it should not."""
    needs_gradient = False
    def run(self, source, batch, report):
        return self.reply(batch, report)

class Liar(np.ndarray):
    """Says that it is within the ball, and is not."""
    def astype(self, *_, **__):
        return np.zeros(np.ndarray.__getattribute__(self, "shape"), np.float32)

class Touching:
    """Runs something where it is unpickled."""
    def __reduce__(self):
        return (os.system, ("touch unpickled",))

class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Evasive(Attacked):
    def __getattribute__(self, name):
        if name == "flags":
            raise OSError("not today")
        return super().__getattribute__(name)

def failing(error):
    def reply(self, batch, report):
        raise error
    return reply

def write_to_driver(data):
    """Writes to every connection of this process, one of which leads to the driver."""
    for one in [found for found in gc.get_objects() if type(found) is socket.socket]:
        try:
            os.write(one.fileno(), data)
        except OSError:
            pass

def forging(data):
    def reply(self, batch, report):
        write_to_driver(data)
        return answer(batch)
    return reply

def kinds():
    import pickle
    yield "Fine", lambda self, batch, report: answer(batch)
    yield "Mapping", lambda self, batch, report: {"images": batch.images}
    yield "Nothing", lambda self, batch, report: None
    yield "Lists", lambda self, batch, report: answer(batch, images=batch.images.tolist())
    yield "Doubles", lambda self, batch, report: answer(batch, images=batch.images.astype(float))
    yield "Objects", lambda self, batch, report: answer(batch, images=batch.images.astype(object))
    yield "Halves", lambda self, batch, report: answer(batch, images=batch.images[:, ::2])
    yield "Fewer", lambda self, batch, report: answer(batch, images=batch.images[1:])
    yield "Lies", lambda self, batch, report: answer(batch, images=(1 - batch.images).view(Liar))
    yield "Nans", lambda self, batch, report: answer(batch, images=batch.images * np.float32(np.nan))
    yield "TextFlag", lambda self, batch, report: answer(batch, flags={"weak": "many"})
    yield "NanFlag", lambda self, batch, report: answer(batch, flags={"weak": float("nan")})
    yield "HugeFlag", lambda self, batch, report: answer(batch, flags={"weak": 2**70})
    yield "VastFlag", lambda self, batch, report: answer(batch, flags={"weak": 10**5000})
    yield "NegativeFlag", lambda self, batch, report: answer(batch, flags={"weak": -1})
    yield "ListFlags", lambda self, batch, report: answer(batch, flags=["weak"])
    yield "NulFlag", lambda self, batch, report: answer(batch, flags={"we\\0ak": 1})
    yield "RedFlag", lambda self, batch, report: answer(batch, flags={"\\x1b[31mred": 1})
    yield "ManyFlags", lambda self, batch, report: answer(batch, flags={f"f{i}": 1 for i in range(1000)})
    yield "Touches", lambda self, batch, report: answer(batch, flags={"weak": Touching()})
    yield "NanCount", lambda self, batch, report: answer(batch, gradients=batch.labels * np.nan)
    yield "HugeCount", lambda self, batch, report: answer(batch, queries=[2**70 for _ in batch.labels])
    yield "LargeCount", lambda self, batch, report: answer(batch, gradients=batch.labels.astype(np.int64) + 2**40)
    yield "NegativeCount", lambda self, batch, report: answer(batch, queries=-1 - batch.labels)
    yield "TextCount", lambda self, batch, report: answer(batch, gradients=np.array(["many" for _ in batch.labels]))
    yield "WordSuccess", lambda self, batch, report: answer(batch, success=["yes" for _ in batch.labels])
    yield "ShortMargin", lambda self, batch, report: answer(batch, margin=np.zeros(1))
    yield "OneRestart", lambda self, batch, report: answer(batch, restart=0)
    yield "FarRestart", lambda self, batch, report: answer(batch, restart=batch.labels.astype(np.int64) + 2**20)
    yield "Ragged", lambda self, batch, report: answer(batch, target=[[1] * i for i, _ in enumerate(batch.labels)])
    yield "StrangePart", lambda self, batch, report: answer(batch, part=np.zeros(len(batch.labels), np.int32))
    yield "Dodges", lambda self, batch, report: Evasive(**vars(answer(batch)))
    yield "WordReport", lambda self, batch, report: report("much")
    yield "NanReport", lambda self, batch, report: report(float("nan"))
    yield "NulError", failing(RuntimeError("a\\0b \\x1b[31mred\\nsecond line"))
    yield "HugeError", failing(RuntimeError("word " * 10**6))
    yield "HalfError", failing(RuntimeError("half a letter: \\ud800"))
    yield "Mute", failing(Unspeakable())
    yield "Exits", failing(SystemExit(3))
    yield "Interrupts", failing(KeyboardInterrupt())
    yield "Noise", forging(bytes(range(256)) * 100)
    yield "Pickle", forging(pickle.dumps(Touching()))

for name, reply in kinds():
    globals()[name] = type(name, (Replying,), {"reply": reply, "__doc__": "Replies."})
'''
SAID = {
    "mapping": "the attack returned an object of type dict, not a bench.api.Attacked",
    "nothing": "the attack returned an object of type NoneType, not a bench.api.Attacked",
    "lists": "the attack returned an object of type list, not an array of images",
    "doubles": "the attack returned float64 images, not float32",
    "objects": "the attack returned object images, not float32",
    "halves": "the attack returned (3, 16, 32, 3), not images of shape (3, 32, 32, 3)",
    "fewer": "the attack returned (2, 32, 32, 3), not images of shape (3, 32, 32, 3)",
    "lies": "the attack left the linf ball of 0.0313725 in 3 of 3 images",
    "nans": "the attack returned NaN or infinite values in 3 of 3 images",
    "textflag": "the attack returned 'many' as the count of flag weak, not a number from 0 to 3",
    "nanflag": "the attack returned nan as the count of flag weak, not a number from 0 to 3",
    "hugeflag": f"the attack returned {2**70} as the count of flag weak, not a number from 0 to 3",
    "vastflag": "the attack returned a number too large to be written as the count of flag weak",
    "negativeflag": "the attack returned -1 as the count of flag weak, not a number from 0 to 3",
    "listflags": "the attack returned an object of type list as flags, not a mapping of names to counts",
    "nulflag": r"the attack returned 'we\x00ak' as the name of a flag, not a word such as zero-gradient",
    "redflag": r"the attack returned '\x1b[31mred' as the name of a flag, not a word such as zero-gradient",
    "manyflags": "the attack returned 1000 flags, not 100 at most",
    "touches": "the attack returned an object of type Touching as the count of flag weak",
    "nancount": "the attack returned float64 values of gradients, not whole numbers",
    "hugecount": "the attack returned object values of queries, not whole numbers",
    "largecount": "as gradients, not a number from 0 to 2147483647",
    "negativecount": "as queries, not a number from 0 to 2147483647",
    "textcount": "the attack returned <U4 values of gradients, not whole numbers",
    "wordsuccess": "the attack returned <U3 values of success, not truth values (bool)",
    "shortmargin": "the attack returned (1,) values of margin for 3 examples",
    "onerestart": "the attack returned () values of restart for 3 examples",
    "farrestart": "as restart, not a number from -1 to 32767",
    "ragged": "the attack returned list as target, not an array",
    "strangepart": "the attack names part 0; its engine declares 0",
    "dodges": "OSError: not today",
    "wordreport": "the attack reported 'much' as work done, not a number of 0 or more",
    "nanreport": "the attack reported nan as work done, not a number of 0 or more",
    "nulerror": "RuntimeError: a\N{REPLACEMENT CHARACTER}b \N{REPLACEMENT CHARACTER}[31mred second line",
    "hugeerror": "RuntimeError: word word word",
    "halferror": "RuntimeError: half a letter: \N{REPLACEMENT CHARACTER}",
    "mute": "Unspeakable: <Unspeakable, which cannot be read: RuntimeError>",
    "exits": "SystemExit: 3",
    "interrupts": "KeyboardInterrupt",
    "noise": "the attack's process sent something other than a message, and was ended",
    "pickle": "the attack's process sent something other than a message, and was ended",
}


@pytest.mark.needs_process
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_wrong_replies_fail_their_cells_alone(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = str(tmp_path / "bench.db") if store == "sqlite" else request.getfixturevalue("postgres").database()
    names = [line.split('"')[1] for line in PACKAGE.splitlines() if line.startswith('    yield "')]
    assert {name.lower() for name in names} == {"fine", *SAID}
    assert len(SAID) >= 30
    path = packages.attacks(tmp_path / "packages", "replying", PACKAGE, *names)
    attacks = [word for name in names for word in ("--attack", f"{name.lower()}@self")]
    done = bench("run", "--defence", "none", *attacks, "--preset", "smoke", "--examples", "3", "--norm", "linf", "--db",
                 url, cwd=tmp_path, PYTHONPATH=path)  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "done: none linf fine@self" in done.stderr
    lines = done.stderr.splitlines()
    for name, said in SAID.items():
        (line,) = [line for line in lines if line.startswith(f"failed: none linf {name}@self: ")]
        assert said in line
        assert len(line) < 2_200
        assert line.isprintable()
    database = sa.create_engine(url_of(url))
    with database.connect() as connection:
        query = "SELECT name, status, error FROM cell JOIN attack ON attack.id = cell.attack_id"
        found = {name: (status, error) for name, status, error in connection.execute(sa.text(query))}
        counted = connection.execute(sa.text("SELECT COUNT(*) FROM result")).scalar_one()
    database.dispose()
    assert {name for name, (status, _) in found.items() if status == "done"} == {"clean", "fine"}
    assert all(said in found[name][1] for name, said in SAID.items())
    assert counted == 6
    assert not (tmp_path / "unpickled").exists()


# ---- hostile processes, byte by byte

GOOD = codec.encoded(TaskFinished(honest(), 0.5))


def framed(document: dict[str, Any] | None = None, arrays: dict[str, Any] | None = None, **changed: Any) -> bytes:
    """An honest reply with something changed, as bytes."""
    own = {**GOOD.arrays, **(arrays or {})}
    own = {name: value for name, value in own.items() if value is not None}
    described = [[name, value.dtype.str, list(value.shape)] for name, value in own.items()]
    fields = GOOD.document if document is None else document
    text = json.dumps({**fields, "arrays": described, **changed}).encode()
    tail = b"".join(value.tobytes() for value in own.values())
    return struct.pack(">4sIQ", b"bch1", len(text), len(tail)) + text + tail


def said(document: dict[str, Any]) -> bytes:
    text = json.dumps({**document, "arrays": []}).encode()
    return struct.pack(">4sIQ", b"bch1", len(text), 0) + text


BYTES = {
    "a pickle": pickle.dumps(("finished", 1)),
    "an unknown kind": framed(kind="task"),
    "a kind that is a list": framed(kind=[]),
    "no kind": said({}),
    "text in flags": framed(flags={"a": "many"}),
    "flags that are a list": framed(flags=["a"]),
    "a count of 2**70": framed(flags={"a": 2**70}),
    "a count of NaN": framed(flags={"a": float("nan")}),
    "a flag of no name": framed(flags={"": 1}),
    "negative seconds": framed(seconds=-1),
    "endless seconds": framed(seconds=10**400),
    "seconds as text": framed(seconds="1"),
    "no seconds": framed({"kind": "finished", "flags": {}}),
    "one field more": framed(extra=1),
    "one array more": framed(arrays={"extra": np.zeros(2)}),
    "no images": framed(arrays={"images": None}),
    "images of doubles": framed(arrays={"images": np.zeros(SHAPE)}),
    "images of another shape": framed(arrays={"images": np.zeros((2, 4, 4, 1), np.float32)}),
    "counts of doubles": framed(arrays={"gradients": np.full(2, np.nan)}),
    "negative counts": framed(arrays={"queries": np.full(2, -1, np.int64)}),
    "counts beyond the column": framed(arrays={"queries": np.full(2, 2**40, np.int64)}),
    "success of 2": framed(arrays={"success": np.full(2, 2, np.uint8)}),
    "a target of 10**6": framed(arrays={"target": np.full(2, 10**6, np.int32)}),
    "work that is text": said({"kind": "work", "amount": "much"}),
    "work that is negative": said({"kind": "work", "amount": -1}),
    "an error that is a number": said({"kind": "failed", "error": 1, "detail": ""}),
    "a notice that is a list": said({"kind": "notice", "text": []}),
    "arrays of a terabyte": struct.pack(">4sIQ", b"bch1", 2, 2**40),
}
OTHER_BYTES = {"two answers": framed() + framed() + framed(), "a loss": said({"kind": "lost", "reason": "so it says"})}


def hostile(channel: Channel, threads: int, memory: int | None) -> None:
    """A worker that answers some tasks with bytes of its own, and others as it should."""
    while (frame := channel.receive()) is not None:
        task = codec.task_of(frame)
        channel.send({"kind": "ready"})
        if task.engine != "honest":
            channel._socket.sendall({**BYTES, **OTHER_BYTES}[task.engine])
            time.sleep(1000)
        channel.send(GOOD.document, GOOD.arrays)


def some_task(index: int, engine: str = "pgd") -> AttackTask:
    setup: Any = SimpleNamespace(weights=Path("w"))
    batch: Any = SimpleNamespace(images=np.zeros(SHAPE, np.float32))
    return AttackTask(index, setup, engine, {}, "nominal", "transfer", batch)


def outcomes(tasks: list[AttackTask], limits: Limits, say: Callable[[str], None] = lambda text: None) -> list[Outcome]:
    executor = PoolExecutor("local", LocalPool(limits), limits, say)
    left = iter(tasks)
    try:
        return [found for found in executor.run(lambda: next(left, None), lambda *_: None) if found is not None]
    finally:
        executor.close()


@pytest.mark.needs_process
def test_a_hostile_process_fails_its_own_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "serve", hostile)
    tasks = [some_task(index, name) for index, name in enumerate(name for kind in BYTES for name in (kind, "honest"))]
    found = {one.index: one for one in outcomes(tasks, Limits(workers=2))}
    for task in tasks:
        one = found[task.index]
        if task.engine in BYTES:
            error = one.error or ""
            assert error.startswith("the attack's process sent "), task.engine
            assert error.endswith(", and was ended")
            assert error.isprintable()
            assert len(error) < 500
        else:
            assert one.error is None
            assert one.attacked is not None
            assert one.attacked.images.shape == SHAPE


@pytest.mark.needs_process
def test_a_process_that_says_it_is_lost_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "serve", hostile)
    killed: list[int] = []
    kill = local.LocalWorker.kill

    def noted(self: local.LocalWorker) -> None:
        killed.append(self.child.pid)
        kill(self)

    monkeypatch.setattr(local.LocalWorker, "kill", noted)
    (found,) = outcomes([some_task(0, "a loss")], Limits())
    assert found.error == "the attack's process died 2 times (so it says): out of memory?"
    assert len(set(killed)) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in killed)


@pytest.mark.needs_process
def test_answers_to_nothing_end_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "serve", hostile)
    (found,) = outcomes([some_task(0, "two answers")], Limits())
    assert found.error is None


# ---- the checks themselves, with anything at all

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.lists(st.integers() | st.floats() | st.text() | st.none(), max_size=3),
    st.dictionaries(st.text() | st.integers(), st.integers() | st.floats() | st.text() | st.none(), max_size=3),
    st.sampled_from([np.float32, "<f8", "<i8", "|b1", "<u8", "<f2", "<c8", "|O", "<M8[s]", "<U2"]).flatmap(
        lambda dtype: st.builds(lambda shape: np.zeros(shape, dtype), st.sampled_from([(), (2,), (3,), SHAPE, (0,)]))
    ),
)
FIELDS = [field.name for field in dataclasses.fields(Attacked)]


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, min_size=1, max_size=3))
def test_whatever_an_attack_returns_is_refused_in_one_line_or_can_be_sent_and_stored(fields: dict[str, Any]) -> None:
    try:
        found = replies.checked(dataclasses.replace(honest(), **fields), SHAPE)
    except BenchError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert refusal.startswith("the attack returned ")
        assert one_line(refusal) == refusal
        return
    json.dumps(found.flags, allow_nan=False)
    again = through_the_codec(TaskFinished(found, 1.0))
    assert isinstance(again, TaskFinished)
    for name in ("images", *replies.COLUMNS):
        one, other = getattr(found, name), getattr(again.attacked, name)
        assert (one is None and other is None) or np.array_equal(one, other, equal_nan=name in ("images", "margin"))
    assert again.attacked.flags == found.flags


def through_the_codec(message: Message) -> Message:
    frame = codec.encoded(message)
    return codec.decoded(Frame(json.loads(json.dumps(frame.document)), dict(frame.arrays)), SHAPE)


@given(
    st.dictionaries(st.sampled_from(["kind", "seconds", "flags", "amount", "text", "error", "detail"]), ANYTHING),
    st.dictionaries(st.sampled_from(["images", *replies.COLUMNS]), st.sampled_from([np.zeros(2), np.zeros((2, 1))])),
    st.sampled_from(["ready", "work", "notice", "failed", "finished", "lost"]),
)
def test_whatever_a_frame_says_is_a_message_or_malformed(
    document: dict[str, Any], arrays: dict[str, np.ndarray], kind: str
) -> None:
    for frame in (
        Frame({**GOOD.document, **document}, {**GOOD.arrays, **arrays}),
        Frame({"kind": kind, **document}, arrays),
    ):
        for shape in (SHAPE, None):
            with contextlib.suppress(Malformed):
                codec.decoded(frame, shape)


@given(st.text(alphabet=st.characters(), max_size=200))  # all of Unicode, halves of pairs too
def test_text_of_others_can_be_shown_and_stored(text: str) -> None:
    for shown in (one_line(text), several_lines(text).replace("\n", " ")):
        assert shown.isprintable() or not shown.isascii()
        assert "\0" not in shown
        assert "\x1b" not in shown
        shown.encode()
    assert "\n" not in one_line(text)
    assert len(one_line(text, 20)) <= 20


def test_words_stay_as_they_are() -> None:
    assert one_line("ε = 8/255,  naïve 日本") == "ε = 8/255, naïve 日本"
    assert several_lines("a\n  b\r\nc") == "a\n  b\nc"
    assert os.linesep not in one_line("a\nb")


@pytest.mark.parametrize(
    ("name", "value"),
    [("gradients", -1), ("queries", 2**31), ("restart", 2**15), ("restart", -2), ("target", -2), ("part", 2**15)],
)
def test_numbers_beyond_what_every_store_can_hold_are_refused(name: str, value: int) -> None:
    column = np.array([0, value])
    with pytest.raises(BenchError, match=f"^the attack returned {value} as {name}, not a number from "):
        replies.checked(changed(name, column), SHAPE)
    inside = np.array([0, value + 1 if value < 0 else value - 1])
    assert getattr(replies.checked(changed(name, inside), SHAPE), name).tolist() == inside.tolist()
