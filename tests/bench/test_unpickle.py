"""The reader of pickled arrays against pickles made to harm: whatever they say, it gives arrays or one clear error."""

from __future__ import annotations

import io
import pickle
import random
from typing import Any

import numpy as np
import pytest

from bench.api import BenchError
from bench.support.unpickle import load_arrays

ARRAYS = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "big endian": np.array([1, 2, 3], ">i4"),
    "half": np.array([0.5], np.float16),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 3), np.uint8),
    "scalar": np.float64(2.5),
}


def loads(content: bytes) -> Any:
    return load_arrays(io.BytesIO(content))


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_numbers_come_back_as_they_were(protocol: int) -> None:
    found = loads(pickle.dumps({"a": [ARRAYS], "again": ARRAYS}, protocol))
    own = {key.decode() if isinstance(key, bytes) else key: value for key, value in found.items()}
    (first,) = own["a"]
    assert first is own["again"], "what is there twice is one object"
    for name, array in ARRAYS.items():
        value = first.get(name, first.get(name.encode()))
        np.testing.assert_array_equal(value, array)
        assert np.asarray(value).dtype == np.asarray(array).dtype.newbyteorder("=")


def test_an_array_of_objects_is_made_of_objects_that_are_in_the_pickle() -> None:
    box = np.empty(2, object)
    box[:] = [{"w": np.ones(2)}, "text"]
    found = loads(pickle.dumps(box, 4))
    assert found.dtype == object
    np.testing.assert_array_equal(found[0]["w"], [1, 1])


def reduced(function: str, *arguments: str) -> bytes:
    """A pickle of protocol 0 that calls a function of a module with literals."""
    module, _, name = function.rpartition(".")
    return f"c{module}\n{name}\n(".encode() + "".join(arguments).encode("latin1") + b"tR."


OBJECT_TYPE = "cnumpy\ndtype\n(VO8\ntR"
FLOATS = "cnumpy\ndtype\n(Vf4\ntR"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (reduced("numpy.ndarray", "(I1\nt", OBJECT_TYPE, "VAAAAAAAA\n"), "cannot be read"),
        (reduced("numpy.core.numeric._frombuffer", "VAAAAAAAA\n", OBJECT_TYPE, "(I1\nt", "VC\n"), "else than numbers"),
        (reduced("numpy._core.multiarray.scalar", OBJECT_TYPE, "VAAAAAAAA\n"), "else than numbers"),
        (reduced("numpy.core.numeric._frombuffer", "VAAAA\n", FLOATS, "(I1000000000\nt", "VC\n"), "in 4 bytes"),
        (reduced("numpy.core.numeric._frombuffer", "VAAAA\n", FLOATS, "(I-1\nI-1\nt", "VC\n"), "an array of shape"),
        (reduced("numpy.core.numeric._frombuffer", "VAAAA\n", FLOATS, f"(I{10**30}\nt", "VC\n"), "an array of shape"),
        (reduced("numpy.dtype", "VV8\n"), "numbers of type 'V8'"),
        (reduced("numpy.dtype", "Vf4,f4\n"), "numbers of type"),
        (reduced("numpy.dtype", "VM8[s]\n"), "numbers of type"),
        (reduced("numpy.core.multiarray._reconstruct", "cnumpy\ndtype\n", "(I0\nt", "Vb\n"), "of another class"),
        (b"cnumpy\ndtype\n(Vf4\ntR(I3\nV<\n(Va\ntNNI-1\nI-1\nI0\ntb.", "several fields"),
        (b"cnumpy\ndtype\n(Vf4\ntR(I3\nVboth\nNNNI-1\nI-1\nI0\ntb.", "no kind of number"),
        (b"cbuiltins\neval\n(V1\ntR.", "builtins.eval"),
        (b"cnumpy\nload\n(Va\ntR.", "numpy.load"),
    ],
)
def test_pickles_made_to_harm_are_refused(content: bytes, said: str) -> None:
    with pytest.raises(BenchError, match=said.replace("[", r"\[")):
        loads(content)


def test_a_pickle_that_makes_far_more_than_it_holds_is_refused() -> None:
    text = b"X" + (2**20).to_bytes(4, "little") + b"a" * 2**20
    again = b"c_codecs\nencode\n(h\x00tR0" * 50
    with pytest.raises(BenchError, match="far more than it holds"):
        loads(text + b"q\x000" + again + b"N.")


def test_a_container_inside_itself_and_one_in_itself_many_times_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    found = loads(pickle.dumps(loop, 4))
    assert found[0] is found
    wide: Any = []
    for _ in range(60):
        wide = [wide, wide]
    assert len(loads(pickle.dumps(wide, 4))) == 2


OPCODES = [getattr(pickle, name) for name in pickle.__all__ if isinstance(getattr(pickle, name), bytes)]
NAMES = ["numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct", "numpy._core.multiarray scalar",
         "numpy._core.numeric _frombuffer", "collections OrderedDict", "_codecs encode"]  # fmt: skip
WORDS = ["VO8", "Vf4", "Vlatin1", "I0", "I1", "I8", "I-1", "Vb", "V<", "V|"]
PIECES = [
    *[b"c" + name.replace(" ", "\n").encode() + b"\n" for name in NAMES], *[word.encode() + b"\n" for word in WORDS],
    *[bytes([code]) for code in b"(tRbN}]02sauee.\x81\x88"], b"q\x00", b"h\x00", b"q\x01", b"h\x01", b"C\x08AAAAAAAA",
    b"C\x04\x00\x00\x80?",
]  # fmt: skip


def mutated(generator: random.Random, honest: bytes) -> bytes:
    """An honest pickle with bytes changed, cut out, doubled or taken from elsewhere in it."""
    content = bytearray(honest)
    for _ in range(generator.randint(1, 6)):
        at, length = generator.randrange(len(content)), generator.randint(1, 8)
        kind = generator.randrange(4)
        if kind == 0:
            content[at] = generator.randrange(256)
        elif kind == 1:
            del content[at : at + length]
        elif kind == 2:
            content[at:at] = generator.choice(PIECES + OPCODES)
        else:
            content[at:at] = content[generator.randrange(len(content)) :][:length]
        if not content:
            break
    return bytes(content)


def is_plain(value: Any, seen: set[int]) -> bool:
    """Whether there is nothing in it but numbers, text, arrays of numbers or objects, dtypes and containers of these."""
    if id(value) in seen:
        return True
    seen.add(id(value))
    if isinstance(value, dict):
        return all(is_plain(part, seen) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_plain(part, seen) for part in value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return all(is_plain(part, seen) for part in value.ravel())
    allowed = (np.ndarray, np.generic, np.dtype, int, float, str, bytes, bytearray, bool, type(None))
    return isinstance(value, allowed) or callable(value) or type(value) is object  # a function of ours, not called


def test_ten_thousand_changed_pickles_give_arrays_or_one_clear_error() -> None:
    generator = random.Random(0)
    honest = [pickle.dumps(ARRAYS, protocol) for protocol in range(6)]
    read = refused = 0
    said: set[bool] = set()
    for case in range(10_000):
        if case % 2:
            content = mutated(generator, generator.choice(honest))
        else:
            content = b"".join(generator.choice(PIECES) for _ in range(generator.randint(1, 14))) + b"."
        try:
            found = loads(content)
        except BenchError as error:
            said.add(str(error).isprintable())
            refused += 1
        else:
            assert is_plain(found, set())
            read += 1
    assert read > 500, "the cases are not all nonsense"
    assert refused > 500
    assert said == {True}, "an error is one line without control characters"
