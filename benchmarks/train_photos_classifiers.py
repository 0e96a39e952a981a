"""Makes the five reference classifiers that ship for `photos` with 10 classes:
metrics/weights/photos.{safetensors,json}.

    python benchmarks/train_photos_classifiers.py [--steps 1500]

They are trained on every auxiliary patch and measured on every test patch. Weights are stored, and measured, in
float16.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.defenses.data import load, photos
from dpfl_audit.defenses.data.dataset import digest
from dpfl_audit.metrics.classifiers import WEIGHTS, train_reference
from dpfl_audit.metrics.utility import accuracy
from safetensors.torch import save

CLASSES = 10
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="batches of 64 for each classifier (default 1500)")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)

    room = photos.capacity(CLASSES)
    data = load("photos", classes=CLASSES, test_samples=room["test"], auxiliary_samples=room["auxiliary"], seed=SEED)
    inputs, targets, test = data.auxiliary_inputs, data.auxiliary_targets, (data.test_inputs, data.test_targets)
    reference = train_reference(inputs, targets, CLASSES, SEED, test=test, steps=steps, flip=True, progress=report)

    tensors: dict[str, torch.Tensor] = {}
    accuracies: dict[str, float] = {}
    for family, model in reference.members:
        assert isinstance(model, torch.nn.Module)
        model.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
        tensors |= {f"{family}.{name}": value.half().contiguous() for name, value in model.state_dict().items()}
        alone = replace(reference, members=((family, model),))
        accuracies[family] = round(accuracy(alone.averaged_outputs(test[0]), test[1]), 4)
    accuracies["average"] = round(accuracy(reference.averaged_outputs(test[0]), test[1]), 4)
    facts = {
        "dataset": "photos",
        "families": [family for family, _ in reference.members],
        "shape": list(data.input_shape),
        "classes": CLASSES,
        "test_accuracy": accuracies,
        "trained_on": {"split": "auxiliary", "patches": len(inputs), "sha256": digest(inputs, targets)},
        "tested_on": {"split": "test", "patches": len(test[0]), "sha256": digest(*test)},
        "steps": steps,
        "seed": SEED,
        "torch": torch.__version__,
    }
    WEIGHTS.mkdir(exist_ok=True)
    (WEIGHTS / "photos.safetensors").write_bytes(save(tensors))
    (WEIGHTS / "photos.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(accuracies))


def report(done: int, total: int) -> None:
    if done % 100 == 0:
        print(f"step {done} of {total}", file=sys.stderr)


if __name__ == "__main__":
    main()
