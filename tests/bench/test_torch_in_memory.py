"""PyTorch modules in memory: brought as they are, made anew elsewhere, and never with the weights in every task."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from bench import in_memory
from bench.api import UsageError
from bench.models import brought, torch_in_memory
from bench.models.brought import Given
from tests.processes import run

if importlib.util.find_spec("torch") is None and os.environ.get("CI") != "true":
    pytest.skip("torch is not installed: pip install 'bench-keyed-defences[torch]'", allow_module_level=True)
import torch

SCRIPT = """
import json
import numpy as np
import torch
import bench
from bench.api import Defence

class Untouched(Defence):
    def transform(self, images, key, state):
        return images

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.last = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Linear(8, 4)
        self.norm, self.scale = torch.nn.BatchNorm2d(8), torch.nn.Parameter(torch.full((8,), 2.0))
        self.norm.running_mean += 0.1

    def forward(self, images):
        return self.last(torch.relu(self.norm(self.convolution(images))).mean((2, 3)) * self.scale)

torch.manual_seed(0)
net, random = Net(), np.random.default_rng(0)
x, y = random.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8), np.arange(4) % 3
result = bench.evaluate(Untouched(), "pgd@self", classifier=net, images=x, labels=y, preset="smoke", norms="linf",
                        quiet=True)
rows = result.examples()
with torch.no_grad():
    logits = net.eval()(torch.tensor(x / np.float32(255)).permute(0, 3, 1, 2)).numpy()
own = logits[np.arange(4), y]
logits[np.arange(4), y] = -np.inf
print(json.dumps({"ours": rows[rows["attack"] == "clean"]["margin"].tolist(),
                  "torch": (own - logits.max(axis=1)).tolist(),
                  "attacked": rows[rows["attack"] == "pgd"]["margin"].tolist()}))
"""


@pytest.mark.needs_process
def test_a_module_of_a_script_is_judged_and_attacked_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run([sys.executable, "script.py"], cwd=tmp_path, environment={"BENCH_HOME": str(tmp_path / "home")})
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(said["ours"], said["torch"], atol=1e-5)
    assert sum(said["attacked"]) < sum(said["ours"]) - 1e-3, "its gradients lead somewhere"


def module(width: int = 64) -> torch.nn.Module:
    torch.manual_seed(1)
    first = torch.nn.Conv2d(3, width, 3)
    pool = [torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(first, *pool, torch.nn.Linear(width, 500), torch.nn.Linear(500, 10))


def test_what_is_sent_has_the_structure_and_not_the_weights() -> None:
    given = module(512)
    factory = torch_in_memory.factory_of(given)
    size = sum(parameter.numel() for parameter in given.parameters())
    assert len(cloudpickle.dumps(factory)) < size / 10
    with in_memory.installed([factory]):
        made, other = in_memory.factory(factory.name)(), in_memory.factory(factory.name)()
    assert [value.shape for value in made.state_dict().values()] == [v.shape for v in given.state_dict().values()]
    weights = [net[0].weight.detach().numpy() for net in (given, made, other)]
    assert weights[0].std() == pytest.approx(weights[1].std(), rel=0.2), "it is drawn as the module draws its own"
    assert np.abs(weights[1] - weights[2]).max() > 0.01
    assert np.abs(weights[1] - weights[0]).max() > 0.01
    assert torch_in_memory.outputs(given) == 10


def test_a_module_has_one_name_whatever_its_weights() -> None:
    given, other = module(), module()
    with torch.no_grad():
        other[0].weight += 1
    assert torch_in_memory.name_of(given) == torch_in_memory.name_of(other)
    assert torch_in_memory.name_of(given) != torch_in_memory.name_of(module(32))


class Reversed(torch.nn.Module):
    """Reads channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(3, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(images.mean((1, 2)))
        return out


def test_channels_are_read_first_or_else_last() -> None:
    for given, channels in ((module(), "first"), (Reversed(), "last")):
        with in_memory.installed([torch_in_memory.factory_of(given)]):
            found = brought.read(Given(given), (16, 8, 3), 10)
        assert found.network.settings["channels"] == channels
        images = np.random.default_rng(0).random((2, 16, 8, 3), np.float32)
        order = (0, 3, 1, 2) if channels == "first" else (0, 1, 2, 3)
        with torch.no_grad():
            wanted = given.eval()(torch.tensor(images.transpose(order))).numpy()
        np.testing.assert_allclose(np.asarray(found.model(images, training=False)), wanted, atol=1e-5)


def test_what_cannot_be_brought_is_said() -> None:
    given = module()
    with pytest.raises(UsageError, match="was in the memory of another process, and is not here"):
        brought.read(Given(given), (16, 16, 3), 10)
    with in_memory.installed([torch_in_memory.factory_of(given)]):
        with pytest.raises(UsageError, match="where 1×7 is wanted"):
            brought.read(Given(given), (16, 16, 3), 7)
        with pytest.raises(UsageError, match="a module in memory has its own"):
            brought.read(Given(given, Path("w.safetensors")), (16, 16, 3), 10)
    given.lock = threading.Lock()
    with pytest.raises(UsageError, match=r"Sequential cannot be sent .* 'torch:package.module:factory@FILE'"):
        torch_in_memory.factory_of(given)
