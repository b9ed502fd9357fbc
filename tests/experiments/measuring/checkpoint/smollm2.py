"""Parity of SmolLM2 in a process of its own, where no array shape is checked: that would take minutes.

Run as a module it writes one JSON object: by storage and backend, what was found.
"""

import json
from itertools import product

import torch

from experiments.measuring.checkpoint.conversion import windowed
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.parity import cached, recomputed, theirs
from experiments.measuring.checkpoint.run import Run
from tests.builders import BACKENDS, STORAGES, request
from variants.contract.dtype import Dtype
from variants.storage.ring import Ring

NEW = 200
REAL = (  # Abraham Lincoln, Gettysburg, 19 November 1863
    "Four score and seven years ago our fathers brought forth, upon this continent, a new nation, conceived in "
    "liberty, and dedicated to the proposition that all men are created equal."
)


def readers(model: Checkpoint) -> dict[str, tuple[str, str]]:
    """Every storage and CPU backend that can hold and read its cache here; a ring has a window over the whole text."""
    spec, found = model.specs[0], {}
    for storage, backend in product(STORAGES, BACKENDS):
        like = STORAGES["paged" if storage == "ring" else storage]  # who reads pages reads a ring
        if not BACKENDS[backend].refuses(request(spec.geometry(), spec.layout(Dtype.F32), like)):
            found[f"{storage}, {backend}"] = storage, backend
    return found


def main() -> None:
    model = load("smollm2")
    text = theirs(model, torch.tensor([model.tokenizer()(REAL).input_ids]), NEW)
    whole, found = text.ids.shape[1], readers(model)
    policies = {**STORAGES, "ring": Ring(queries=64)}
    layers = {"ring": windowed(model.attentions, whole)}
    runs = [Run(model, layers.get(s, model.attentions), policies[s], BACKENDS[b], whole) for s, b in found.values()]
    parities = dict(zip(found, cached(text, model, runs), strict=True))
    parities["no cache"] = recomputed(text, model, model.attentions)
    said = {
        name: {"said": str(p), "tokens": p.tokens, "holds": p.holds, "error": p.logit_error, "gaps": p.gaps}
        for name, p in parities.items()
    }
    by_layout = 30 * (whole - 1) * 2 * 3 * 64 * 4
    right = all(run.bytes_in_use == run.bytes_predicted == by_layout for run in runs)
    print(json.dumps({"parities": said, "bytes as predicted": right}))


if __name__ == "__main__":
    main()
