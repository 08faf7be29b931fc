"""Which examples a shard has: all from `start` to `stop`, or some of those, which are then listed.

A shard begins and ends with an example of its own, so that no two shards of a cell have the same bounds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def examples_of(shard: Any) -> Sequence[int]:
    """The examples of a row of `shard`, in their order."""
    listed = shard["examples_json"]
    return range(shard["start"], shard["stop"]) if listed is None else tuple(json.loads(listed))


def bounds(examples: Sequence[int]) -> dict[str, Any]:
    """The columns of `shard` that say which examples (in their order) it has."""
    start, stop = int(examples[0]), int(examples[-1]) + 1
    whole = stop - start == len(examples)
    return {"start": start, "stop": stop, "examples_json": None if whole else json.dumps([int(e) for e in examples])}


def problem(shard: Any) -> str | None:
    """What is wrong with the list of a shard that somebody else has made; its bounds are in order."""
    if shard["examples_json"] is None:
        return None
    listed = json.loads(shard["examples_json"])
    if not all(type(one) is int for one in listed) or listed != sorted(set(listed)):
        return "lists what are no examples in their order"
    if not listed or (listed[0], listed[-1]) != (shard["start"], shard["stop"] - 1):
        return "lists other examples than from its start to its stop"
    return "lists all of its examples" if len(listed) == shard["stop"] - shard["start"] else None


def named(examples: Sequence[int]) -> str:
    """What a message calls some examples, which are in their order."""
    first, last = examples[0], examples[-1]
    if len(examples) == 1:
        return f"example {first}"
    if last - first + 1 == len(examples):
        return f"examples {first} to {last}"
    return f"{len(examples)} of the examples {first} to {last}"
