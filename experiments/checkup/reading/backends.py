"""Ask every backend with small requests what it would refuse here."""

from collections.abc import Iterator

from experiments.checkup.backends import Backends
from variants.contract.dtype import Dtype
from variants.contract.model import ModelShape
from variants.contract.plugin import find, kinds
from variants.protocols import Backend, Request, Spec

MODEL = ModelShape("small", "made up", 2048, num_hidden_layers=1, num_attention_heads=16, num_key_value_heads=4)
ATTENTIONS: tuple[tuple[str, dict[str, int]], ...] = (("grouped", {"num_kv_heads": 4}), ("latent", {}))
STORAGES: tuple[tuple[str, dict[str, int]], ...] = (
    ("contiguous", {}),
    ("paged", {"page_size": 16}),
    ("paged", {"page_size": 64}),
    ("paged", {"page_size": 256}),
)
DTYPES = (Dtype.BF16, Dtype.F16, Dtype.F32)


def read(devices: list[str]) -> Backends:
    """Per backend and device: nothing if it takes one of the requests, else its reasons for the one it minds least."""
    found = {name: find("backend", name)() for name in kinds("backend")}
    requests = {device: list(_requests(device)) for device in devices}
    return Backends({n: {d: _least(backend, requests[d]) for d in devices} for n, backend in found.items()})


def _least(backend: Backend, requests: list[Request]) -> tuple[str, ...]:
    return min((tuple(backend.refuses(request)) for request in requests), key=len)


def _requests(device: str) -> Iterator[Request]:
    for kind, given in ATTENTIONS:
        spec: Spec = find("attention", kind).from_model(MODEL, **given)
        for storage, options in STORAGES:
            policy = find("storage", storage)(**options)
            for dtype in DTYPES:
                yield Request(spec.geometry(), spec.layout(dtype), policy, device, dtype, queries=1, ragged=False)
