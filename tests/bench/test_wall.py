"""The wall between attacks and the private key: a spy among the attacks, and a search of everything a run leaves."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess
from typing import Any

import pytest

from tests import packages, tiny
from tests.processes import bench, bench_command, started

pytestmark = pytest.mark.needs_process

SECRET = 5938457234985723498
MASK = 0x5A5AA5A55A5AA5A5

SPY = f'''
"""An attack that looks for the key everywhere it can reach. It knows the key only under a mask."""
import gc, os, re, sys, time, types
from pathlib import Path
import numpy as np
from bench.api import Attacked, Engine, ModelSource, Strategy

MASK, MASKED = {MASK}, {SECRET ^ MASK}
NUMBER = re.compile("[0-9a-fA-F]{{12,40}}")

def is_key(value):
    if isinstance(value, bool) or not isinstance(value, (int, np.integer, str, bytes, np.ndarray)):
        return False
    if isinstance(value, (int, np.integer)):
        return not isinstance(value, np.timedelta64) and (int(value) & (2**64 - 1)) ^ MASK == MASKED
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu" and value.size < 10 and any(is_key(int(v)) for v in value.ravel())
    text = value if isinstance(value, str) else value.decode("latin1")
    for word in NUMBER.findall(text):
        for base in (10, 16):
            try:
                if is_key(int(word, base)):
                    return True
            except ValueError:
                pass
    return False

def contents(thing):
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return list(thing)
    try:
        return [getattr(thing, slot) for slot in getattr(type(thing), "__slots__", ()) if hasattr(thing, slot)]
    except Exception:
        return []

def places(source, batch):
    yield "gc", [item for thing in gc.get_objects() for item in contents(thing)]
    frames = [f for top in sys._current_frames().values() for f in chain(top)]
    yield "frames", [value for frame in frames for value in frame.f_locals.values()]
    yield "environment", [*os.environ.values(), Path("/proc/self/environ").read_bytes()]
    yield "arguments", [*vars(source).values(), *vars(batch).values(), sys.argv and " ".join(sys.argv)]
    closures = [cell.cell_contents for f in gc.get_objects() if type(f) is types.FunctionType
                for cell in f.__closure__ or () if cell_is_full(cell)]
    yield "closures", closures + [item for thing in closures for item in contents(thing)]
    from defences.block_shuffle import BlockShuffle
    yield "defence", [v for d in gc.get_objects() if type(d) is BlockShuffle for v in vars(d).values()]
    files = [path for path in Path.cwd().rglob("*") if path.is_file() and path.suffix != ".key"]
    yield "store", [path.read_bytes() for path in files if path.stat().st_size < 2**24]

def cell_is_full(cell):
    try:
        cell.cell_contents
        return True
    except ValueError:
        return False

def chain(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back

def spy(place, *things):
    """Looks for the key from wherever plug-in code is run, and writes down where that was and what was found."""
    if seen.count((place, os.getpid())) >= TIMES:
        return
    seen.append((place, os.getpid()))
    frames = [f for top in sys._current_frames().values() for f in chain(top)]
    values = [
        *(item for thing in gc.get_objects() for item in contents(thing)),
        *(value for frame in frames for value in frame.f_locals.values()),
        *os.environ.values(), Path("/proc/self/environ").read_bytes(), " ".join(sys.argv), *things,
        *(v for thing in things for v in vars(thing).values() if hasattr(thing, "__dict__")),
    ]
    worth = {{id(v): v for v in values if isinstance(v, KINDS) and not (type(v) is str and len(v) < 12)}}
    found = any(is_key(value) for value in worth.values())
    del frames, values, worth  # a frame that refers to itself would stay, and be searched by the next
    with open(LOG, "a") as log:
        log.write(f"{{place}} {{os.getpid()}} {{'KEY' if found else 'nothing'}}\\n")

LOG = Path(__file__).parent.parent / "spied.log"
TIMES = 1  # a place is looked at so often per process: planning asks a strategy hundreds of times
KINDS = (int, np.integer, str, bytes, np.ndarray)
seen = []

class Leaving:
    """Looks when it goes: in the middle of something else, or at the end of its process."""

    def __del__(self):
        spy("del")

class Trap:
    """Runs code in whatever process unpickles it."""

    def __reduce__(self):
        spy("reduce")
        return (eval, ("__import__('spy_module').spy('unpickled')",))

spy("import")
leaving = Leaving()

class Everywhere(Strategy):
    """Has code in every place where a strategy is asked something."""

    spy("class body")

    def sources(self, defence):
        spy("sources", defence)
        Leaving()
        return ["everywhere"]

    def refusal(self, defence, source):
        spy("refusal", defence)
        return None

    def describe(self, source, defence):
        spy("describe", defence)
        return super().describe(source, defence)

    def builds(self, defence, source):
        spy("builds", defence)
        return source.startswith("everywhere")

    def build(self, source, knowledge):
        spy("build", knowledge, knowledge.defence)
        plain = knowledge.workshop.classifier("none", {{}})
        return ModelSource(source, plain.logits, exact=True)

class Digger(Engine):
    """Has code in every place where an engine is asked something."""

    needs_gradient = False

    def work(self, examples):
        spy("work")
        return examples

    def run(self, source, batch, report):
        spy("run", source, batch)
        Leaving()
        report(1)
        return result(batch)

class Trapper(Engine):
    """Gives back something that runs code where it is unpickled."""

    needs_gradient = False

    def run(self, source, batch, report):
        spy("trap is set")
        found = result(batch)
        object.__setattr__(found, "flags", {{"trap": Trap()}})
        return found

class Spy(Engine):
    """Looks for the key."""

    def run(self, source, batch, report):
        assert self.planted(source, batch), "the search itself is blind"
        gc.collect()
        found = search(source, batch)
        Path("spied.txt").write_text(" ".join(found) or "nothing")
        return result(batch)

    def planted(self, source, batch):
        planted = [{SECRET} ^ 0]  # what the search must be able to find; gone with this frame
        return search(source, batch) and planted

def search(source, batch):
    return [name for name, values in places(source, batch) if any(is_key(value) for value in values)]

class Sleeper(Engine):
    """Waits to be looked at."""

    def run(self, source, batch, report):
        Path("asleep.txt").write_text(str(os.getpid()))
        while not Path("wake").exists():
            time.sleep(0.05)
        return result(batch)

def result(batch):
    zeros = np.zeros(len(batch.labels), np.int64)
    return Attacked(batch.images, zeros == 1, zeros.astype(np.float32), zeros, zeros, zeros, zeros)
'''


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key of its own, a tiny preset, spies on the PYTHONPATH, and a trained defence."""
    folder = tmp_path_factory.mktemp("wall")
    tiny.make(folder)
    (folder / "my.key").write_text(f"mine:{SECRET}\n")
    (folder / "my.key").chmod(0o600)
    # The key itself may stand in no file but the key file: the planted copy is written as a sum.
    code = SPY.replace(f"[{SECRET} ^ 0]", f"[{SECRET - 1} + len(batch.labels[:1])]")
    packages.attacks(folder / "packages", "spy", code, "Spy", "Sleeper", "Everywhere", "Digger", "Trapper")
    return folder


def run(world: Path, *attacks: str, **environment: Any) -> CompletedProcess[str]:
    options = [option for attack in attacks for option in ("--attack", attack)]
    return bench("run", "--defence", "block-shuffle", *options, "--preset", "tiny.toml", "--dataset", "mine.npz",
                 cwd=world, PYTHONPATH=str(world / "packages"), BENCH_HOME=str(world / "home"), **environment)  # fmt: skip


def test_a_spy_finds_nothing_in_its_process(world: Path) -> None:
    done = run(world, "spy@nominal", BENCH_KEY=f"mine:{SECRET}")
    assert done.returncode == 0, done.stderr
    assert (world / "spied.txt").read_text() == "nothing"


def forms() -> Iterator[bytes]:
    """The key as it might be written: decimal, hexadecimal, bytes in both orders."""
    yield str(SECRET).encode()
    yield f"{SECRET:x}".encode()
    yield f"{SECRET:X}".encode()
    yield SECRET.to_bytes(8, "little")
    yield SECRET.to_bytes(8, "big")


def as_python_keeps_it() -> bytes:
    """The key inside a Python integer: digits of 30 bits, in 32 each."""
    return struct.pack("<III", *(SECRET >> shift & (2**30 - 1) for shift in (0, 30, 60)))


def test_the_key_is_nowhere_in_the_memory_of_any_process_but_the_vaults(world: Path) -> None:
    """From outside, byte by byte: whatever Python would not show a spy. The driver has imported the spies by then."""
    (world / "wake").unlink(missing_ok=True)
    (world / "asleep.txt").unlink(missing_ok=True)
    command = bench_command("run", "--defence", "block-shuffle", "--attack", "sleeper@nominal", "--preset", "tiny.toml",
                            "--dataset", "mine.npz")  # fmt: skip
    environment = {
        "PYTHONPATH": str(world / "packages"), "BENCH_HOME": str(world / "home"), "BENCH_KEY": f"mine:{SECRET}",
    }  # fmt: skip
    with started(command, world, environment, stderr=DEVNULL, stdout=DEVNULL) as process:
        deadline = time.monotonic() + 240
        while not (world / "asleep.txt").exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        worker = int((world / "asleep.txt").read_text())
        family = descendants(process.pid)
        assert {worker, process.pid} <= set(family)
        has_key = [pid for pid in family if in_memory(pid, [as_python_keeps_it(), *forms()])]
        assert len(has_key) == 1, "one process has the key (and so the search itself is not blind), and no other"
        assert has_key[0] not in (worker, process.pid)
        imported_by = {int(line.split()[-2]) for line in (world / "spied.log").read_text().splitlines()}
        assert {worker, process.pid} <= imported_by
        assert has_key[0] not in imported_by, "no plug-in's attack is ever imported where the key is"
        assert not any(str(SECRET).encode() in Path(f"/proc/{pid}/environ").read_bytes() for pid in family)
        (world / "wake").touch()
        process.wait(timeout=60)


def descendants(pid: int) -> list[int]:
    """A process, and all that it has started."""
    own = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in own for child in (task / "children").read_text().split()]
    return [pid, *(one for child in children for one in descendants(child))]


PLACES = {
    "import", "class body", "sources", "refusal", "describe", "builds", "build", "work", "run", "trap is set", "del",
}  # fmt: skip


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_spies_in_every_place_where_plug_ins_code_runs_find_nothing(world: Path, executor: str) -> None:
    (world / "spied.log").unlink(missing_ok=True)
    done = bench("run", "--defence", "block-shuffle", "--attack", "digger@everywhere:7", "--attack", "trapper@everywhere",
                 "--preset", "tiny.toml", "--dataset", "mine.npz", "--executor", executor, "--db", f"{executor}.db",
                 "--key-file", "my.key", cwd=world, PYTHONPATH=str(world / "packages"),
                 BENCH_HOME=str(world / "home"))  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "trapper@everywhere: the attack returned an object of type Trap" in done.stderr
    assert "done: block-shuffle linf digger@everywhere:7" in done.stderr
    spied = [line.rsplit(" ", 2) for line in (world / "spied.log").read_text().splitlines()]
    assert {place for place, _, _ in spied} >= PLACES
    assert "unpickled" not in {place for place, _, _ in spied}, "nothing that an attack gives back is unpickled"
    assert len({pid for _, pid, _ in spied}) >= 2, "in the driver and in an attack's process"
    assert [line for line in spied if line[2] != "nothing"] == []


def test_the_true_key_as_a_guess_is_refused_and_written_nowhere(world: Path) -> None:
    run(world, "pgd@nominal", BENCH_KEY=f"mine:{SECRET}")
    (world / "guess.key").write_text(f"guess:{SECRET}\n")
    (world / "guess.key").chmod(0o600)
    for more in ((), ("--outside-threat-model",)):
        done = bench("run", "--defence", "block-shuffle", "--attack", "pgd@guessed-key", "--key-guess", "guess.key", *more,
                     "--preset", "tiny.toml", "--dataset", "mine.npz", "--key-file", "my.key", cwd=world,
                     BENCH_HOME=str(world / "home"))  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert "no key search of block-shuffle within the threat model" in done.stderr
        for form in forms():
            assert form not in (done.stdout + done.stderr).encode()
            assert not [
                path
                for path in world.rglob("*")
                if path.is_file() and path.suffix != ".key" and form in path.read_bytes()
            ]


def in_memory(pid: int, wanted: list[bytes]) -> bool:
    """Whether any of these bytes stand anywhere in a process's readable memory."""
    try:
        memory = open(f"/proc/{pid}/mem", "rb")  # noqa: SIM115
    except PermissionError:
        pytest.skip("this system lets no process read another's memory")
    with memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if not match:
                continue
            start, stop = int(match[1], 16), int(match[2], 16)
            for at in range(start, stop, 2**26):
                try:
                    memory.seek(at)
                    content = memory.read(min(2**26 + 32, stop - at))
                    if any(form in content for form in wanted):
                        return True
                except (OSError, ValueError, OverflowError):
                    break
    return False


def test_the_key_is_nowhere_in_what_a_run_leaves(world: Path) -> None:
    done = run(world, "pgd@nominal", "square@query", BENCH_KEY=f"mine:{SECRET}")
    assert done.returncode == 2
    assert "outside the threat model" in done.stderr
    shown = [done.stdout + done.stderr]
    done = bench("run", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--attack", "square@query",
                 "--attack", "pgd@key-leaked", "--outside-threat-model", "--preset", "tiny.toml",
                 "--dataset", "mine.npz", "--key-file", "my.key", cwd=world, BENCH_HOME=str(world / "home"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown.append(done.stdout + done.stderr)
    for form in forms():
        assert not [text for text in shown if form in text.encode()]
        for path in world.rglob("*"):
            if path.is_file() and path.suffix != ".key":
                assert form not in path.read_bytes(), f"the key stands in {path.relative_to(world)}"
                assert form not in str(path).encode()
    cells = {c["source"]: c for c in json.loads(bench("results", "--format", "json", cwd=world).stdout)}
    assert cells["nominal"]["inside_threat_model"]
    assert not cells["query"]["inside_threat_model"]
    assert not cells["key-leaked"]["inside_threat_model"]
