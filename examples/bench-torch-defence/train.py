"""Trains the classifier behind the defence with PyTorch alone: python train.py KEY-FILE [EPOCHS], after `bench data fetch`.

Any other way to weights does as well: the harness wants a state_dict, or safetensors, and nothing else.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from bench_torch_defence import TorchShuffleSettings, classifier, shuffled


def train(images, labels, key, epochs=10, batch=128):
    """A trained classifier of images (N×32×32×3, uint8) behind the defence with this key."""
    torch.manual_seed(0)
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    inputs = shuffled(inputs, key, TorchShuffleSettings().block)
    model = classifier(images.shape[1:], int(labels.max()) + 1)
    steps = epochs * -(-len(images) // batch)
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(epochs):
        for rows in torch.randperm(len(images)).split(batch):
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), torch.from_numpy(labels)[rows].long())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    return model.eval()


if __name__ == "__main__":
    home = Path(os.environ.get("BENCH_HOME", Path.home() / ".cache" / "bench"))  # where `bench data fetch` puts them
    data = np.load(home / "data" / "cifar10.npz")
    key = int(Path(sys.argv[1]).read_text().split(":")[1])
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    model = train(data["x_train"], data["y_train"], key, epochs)
    torch.save(model.state_dict(), "weights.pt")
