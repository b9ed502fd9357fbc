"""Three tokens and one more through a layer so small that every number can be printed."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.measuring.prepare import fill_weights
from experiments.measuring.tracing.ledger import Ledger
from experiments.measuring.tracing.watch import watched
from experiments.traced import Attended, Walk
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.contract.model import ModelShape
from variants.contract.plugin import find
from variants.decode import plan_step
from variants.modules import hollow
from variants.noise import noise_
from variants.protocols import Attention, KVCache, Spec
from variants.storage.contiguous import Contiguous

HEADS, PREFIX, SEED = 2, 3, 1
WIDTHS = (2, 4)  # of a head: 2, or 4 where a variant must split it in two even parts
SMALL = {"kv_lora_rank": 2, "qk_rope_head_dim": 2}  # per latent head, and shared
CPU = torch.device("cpu")


def walk(options: Mapping[str, Any]) -> Walk:
    """Prefill three tokens and decode the fourth, watched; ``options`` are those of a ``conf/attention`` yaml.

    Raises ValueError for options that no toy can have.
    """
    spec = toy_spec(options)
    module, x = toy_module(spec), toy_tokens(spec)
    with torch.no_grad():
        cache = Contiguous().allocate(spec.layout(Dtype.F32), 1, PREFIX + 1, CPU)
        prefill, _ = _pass(module.as_form(spec.prefilling()), cache, x[:, :PREFIX])
        before = [slab[:, :, :PREFIX].clone() for slab in cache.view.slabs]
        decode, y = _pass(module, cache, x[:, PREFIX:])
        again = module.reference(x)[0, -1]
    after = [slab[:, :, :PREFIX] for slab in cache.view.slabs]
    geometry, names = spec.geometry(), [stream.name for stream in cache.view.layout.streams]
    return Walk(
        heads=HEADS,
        head_dim=spec.hidden_size // HEADS,
        kv_heads=geometry.num_kv_heads,
        score_width=geometry.d_qk,
        scale=geometry.scale,
        cache={name: _rows(cache.view.stream(name)[0]) for name in names},
        kept=all(torch.equal(a, b) for a, b in zip(before, after, strict=True)),
        prefill=prefill,
        decode=decode,
        y=tuple(y[0, -1].tolist()),
        again=tuple(again.tolist()),
    )


def toy_spec(options: Mapping[str, Any]) -> Spec:
    """The variant with two query heads, as narrow as it can be; what the options leave open is 2 wide."""
    own = dict(options)
    kind = find("attention", own.pop("kind", None))
    for name, width in SMALL.items():
        if name in own and own[name] is None:
            own[name] = width * (own.get("num_latent_heads", 1) if name == "kv_lora_rank" else 1)
    refused = None
    for head_dim in WIDTHS:
        sizes: Any = {"hidden_size": HEADS * head_dim, "head_dim": head_dim, "num_attention_heads": HEADS}
        try:
            made: Spec = kind.from_model(ModelShape("toy", "toy", num_hidden_layers=1, **sizes), **own)
        except TypeError as error:
            raise ValueError(f"attention: {str(error).split('() ')[-1]}") from None
        except ValueError as error:
            refused = error
        else:
            return made
    raise ValueError(f"there is no toy of this: {refused}")


def toy_module(spec: Spec) -> Attention:
    """The layer with seeded noise for weights, in float32."""
    module = hollow(spec)
    assert isinstance(module, torch.nn.Module)
    fill_weights(module, torch.float32, CPU, SEED)
    return module


def toy_tokens(spec: Spec) -> Tensor:
    """Four tokens [1, 4, D] of noise, as a layer below might hand them on."""
    return noise_(torch.empty(1, PREFIX + 1, spec.hidden_size), SEED + 1)


def _pass(module: Attention, cache: KVCache, x: Tensor) -> tuple[Attended, Tensor]:
    """Append and attend the tokens of ``x`` [1, Q, D]; what was scored, and the layer's output."""
    first, queries = int(cache.view.lengths[0]), x.shape[1]
    position = torch.arange(first, first + queries)[None]
    step = plan_step(module, cache, Eager(), first + queries, queries)
    ledger = Ledger(keep=True)
    with watched(step, x, ledger) as seen:
        y = seen(x, position)
    masked = [made.value for made in ledger.made if (made.name, made.function) == ("scores", "where")]
    weights = [made.value for made in ledger.made if made.name == "weights"]
    return Attended(module.spec.form, _per_head(masked[-1]), _per_head(weights[-1])), y


def _per_head(value: Tensor | None) -> tuple[Any, ...]:
    """[1, Q, G, H/G, T] as rows [Q, T] of every query head."""
    assert value is not None
    return _rows(value[0].flatten(1, 2).transpose(0, 1))


def _rows(value: Tensor) -> tuple[Any, ...]:
    """[heads, rows, columns] as plain numbers."""
    return tuple(tuple(tuple(row) for row in head) for head in value.float().tolist())
