"""Any Keras classifier as a network: its settings are the model's own description, of Keras's layers and nothing else."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import keras

from bench.api import Network, Shape, UsageError
from bench.models.outputs import Output, as_logits, check_output
from bench.support.fingerprint import canonical

NAME = "keras"
LONGEST_CONFIG = 4 * 2**20
_LAST_NUMBER = re.compile(r"_\d+$")
_WITH_CODE = ("Lambda", "__lambda__", "TFSMLayer")
_KEPT = ("module", "class_name", "config", "registered_name", "build_config")


@dataclasses.dataclass(frozen=True)
class KerasSettings:
    """Made by `settings_of`."""

    config: str = ""
    """The model as Keras describes it, in JSON."""
    output: Output = "logits"
    """What it gives: `logits`, or `probabilities`, whose logarithms are used."""

    def __post_init__(self) -> None:
        check_output(NAME, self.output)
        if len(self.config) > LONGEST_CONFIG:
            raise UsageError(f"{NAME}: the description of the model is longer than {LONGEST_CONFIG} characters")
        check_config(self._parsed)

    @functools.cached_property
    def _parsed(self) -> Any:
        try:
            return json.loads(self.config or "{}")
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{NAME}: config is not the JSON of a Keras model: {error}") from error


class KerasNetwork(Network):
    """A Keras classifier brought from elsewhere: '--classifier FILE.keras' makes its settings."""

    Settings: ClassVar[type] = KerasSettings
    settings: KerasSettings
    in_all: ClassVar[bool] = False

    def build(self, shape: Shape, classes: int) -> keras.Model:
        model = self._model()
        given = tuple(model.input_shape[1:])
        height, width, channels = shape
        if given == shape:
            inputs, outputs = model.inputs[0], model.outputs[0]
        elif len(given) == 3 and all(a in (None, b) for a, b in zip(given, shape, strict=True)):
            inputs = keras.Input(shape)
            outputs = model(inputs)
        elif given == (channels, height, width):
            inputs = keras.Input(shape)
            outputs = model(keras.layers.Permute((3, 1, 2))(inputs))
        else:
            raise UsageError(f"the Keras model reads {_sizes(given)}, and its input here is {_sizes(shape)}")
        if tuple(outputs.shape[1:]) != (classes,):
            raise UsageError(
                f"the Keras model gives {_sizes(outputs.shape[1:])} per image; it must give {classes} logits, one per class"
            )
        return keras.Model(inputs, as_logits(outputs, self.settings.output))

    def cost(self, shape: Shape, classes: int) -> int:
        return sum(_multiplications(self.build(shape, classes)))

    def _model(self) -> keras.Model:
        if not self.settings.config:
            raise UsageError(f"network {NAME} is made of a model's own description: give --classifier FILE.keras")
        try:
            model = keras.saving.deserialize_keras_object(json.loads(self.settings.config), safe_mode=True)
        except Exception as error:
            raise UsageError(f"the Keras model cannot be built from its description: {_line(error)}") from error
        check_model(model, "the Keras model")
        return model


def settings_of(model: keras.Model, output: Output) -> dict[str, str]:
    """The settings that make a network like this model."""
    described = keras.saving.serialize_keras_object(model)
    kept = {name: described[name] for name in _KEPT if name in described}
    return {"config": canonical(_renamed(kept, _plain_names(kept))), "output": output}


def _plain_names(config: Any) -> dict[str, str]:
    """New names for layers that Keras named, by how many there were before in this process: counted within the model."""
    count: dict[str, int] = {}
    names: dict[str, str] = {}
    for part in _parts(config):
        name = part["config"].get("name") if "class_name" in part and isinstance(part.get("config"), dict) else None
        if not isinstance(name, str) or name in names:
            continue
        kind = _LAST_NUMBER.sub("", name)
        if kind.replace("_", "") == str(part["class_name"]).replace("_", "").lower():
            count[kind] = count.get(kind, -1) + 1
            names[name] = f"{kind}_{count[kind]}" if count[kind] else kind
    return names


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The same description with other names of layers, wherever they are named."""
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def read_file(path: Path) -> keras.Model:
    """The model of a .keras file, from which data is read and no code; one clear line if that cannot be."""
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("config.json").file_size > LONGEST_CONFIG:
                raise UsageError(f"{path}: its description is longer than {LONGEST_CONFIG} characters")
            config = json.loads(archive.read("config.json"))
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError, OSError) as error:
        raise UsageError(f"{path} is no .keras file: {_line(error)}") from error
    try:
        check_config(config)
        model = keras.models.load_model(path, compile=False, safe_mode=True)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except Exception as error:
        raise UsageError(f"{path} is no model that can be loaded safely: {_line(error)}") from error
    check_model(model, str(path))
    return model


def check_config(config: Any) -> None:
    """Refuses a description that names anything but what comes with Keras: building it would run somebody's code."""
    for part in _parts(config):
        name, module = part.get("class_name"), part.get("module")
        if name in _WITH_CODE:
            raise UsageError(f"the model has a layer with code inside ({name}), and only data is read from a file")
        if module is not None and (not isinstance(module, str) or module.partition(".")[0] != "keras"):
            _refuse_own(f"{name} of module {module}")
        if part.get("registered_name") not in (None, name):
            _refuse_own(part["registered_name"])


def _refuse_own(layer: str) -> NoReturn:
    raise UsageError(
        f"the model has a layer of its own, {layer}: only Keras's layers are read from a file; "
        "make it a network of a package (docs/plugins.md)"
    )


def check_model(model: Any, what: str) -> None:
    """Refuses what is no model of one image input and one output."""
    if not isinstance(model, keras.Model):
        raise UsageError(f"{what} is a {type(model).__name__}, no Keras model")
    inputs, outputs = getattr(model, "inputs", None), getattr(model, "outputs", None)
    if not inputs or not outputs:
        raise UsageError(f"{what} has not been built: call it on an image, or give it an Input layer, before saving it")
    if len(inputs) != 1 or len(outputs) != 1:
        raise UsageError(f"{what} has {len(inputs)} inputs and {len(outputs)} outputs; a classifier has one of each")


def _parts(config: Any) -> Iterator[dict[str, Any]]:
    """Every table in a description, however deep."""
    left = collections.deque([config])
    while left:
        one = left.popleft()
        if isinstance(one, dict):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


def _multiplications(model: keras.Model) -> Iterator[int]:
    """Of every layer with a kernel: the kernel's size, once per place of its output."""
    for layer in model._flatten_layers():
        kernel = getattr(layer, "kernel", None)
        if kernel is None or not getattr(layer, "_inbound_nodes", None):
            continue
        shape = layer.output.shape[1:]
        places = math.prod(shape) // max(1, kernel.shape[-1]) if "Depthwise" not in type(layer).__name__ else (
            math.prod(shape[:-1])
        )  # fmt: skip
        yield math.prod(kernel.shape) * max(1, places)


def _sizes(shape: Any) -> str:
    return "×".join(str(size) for size in shape)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
