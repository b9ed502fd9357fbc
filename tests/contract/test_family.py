"""The family table of DESIGN section 2: 128 query heads, d = 128, bf16. A point without a spec yet is built by hand."""

import pytest

from tests.builders import grouped, latent, tied
from variants.contract.cost import Point, attend_work
from variants.contract.dtype import Dtype
from variants.contract.layout import CacheLayout, Quant, Stream
from variants.contract.rotary import Rotary

BF16 = Dtype.BF16


def from_spec(spec):
    return spec.layout(BF16), spec.geometry()


def heads(kv_heads):
    return from_spec(grouped(128, kv_heads, 128, hidden=64))


def mla(form):
    return from_spec(latent(128, 512, 128, 64, 128, rotary=Rotary("interleaved", 64), form=form))


def gta():
    return from_spec(tied(128, 8, 128, 64))


def gla():
    return from_spec(latent(128, 512, 128, 64, 128, rotary=Rotary("interleaved", 64), num_latent_heads=2))


def fp8_mla():
    codes = Stream("latent", 1, 512, Dtype.FP8_E4M3, quant=Quant("scale", 128))
    layout = CacheLayout(
        (codes, Stream("scale", 1, 4, Dtype.F32), Stream("rope", 1, 64, BF16)), rows=(("latent", "scale", "rope"),)
    )
    return layout, mla("absorbed")[1]


ONE_HEAD_LATENT = {"latent": (1, 512), "rope": (1, 64)}
TABLE = {
    # point: (layout, geometry), streams, kv heads, d_qk, d_v, bytes per token and layer, FLOP/byte
    "MHA": (heads(128), {"key": (128, 128), "value": (128, 128)}, 128, 128, 128, 65_536, 1),
    "GQA-8": (heads(8), {"key": (8, 128), "value": (8, 128)}, 8, 128, 128, 4_096, 16),
    "MQA": (heads(1), {"key": (1, 128), "value": (1, 128)}, 1, 128, 128, 512, 128),
    "GTA-8": (gta(), {"tied": (8, 128), "rope": (1, 64)}, 8, 128, 128, 2_176, 30),
    "GLA-2": (gla(), {"latent": (2, 256), "rope": (1, 64)}, 2, 320, 256, 1_152, 128),
    "MLA absorbed": (mla("absorbed"), ONE_HEAD_LATENT, 1, 576, 512, 1_152, 242),
    "MLA fp8": (fp8_mla(), {"latent": (1, 512), "scale": (1, 4), "rope": (1, 64)}, 1, 576, 512, 656, 425),
    "MLA expanded": (mla("expanded"), {"key": (128, 192), "value": (128, 128)}, 128, 192, 128, 81_920, 1),
}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_family_table(row):
    (layout, geometry), streams, kv_heads, d_qk, d_v, bytes_per_token, flop_per_byte = row
    geometry.check(layout)
    assert {s.name: (s.heads, s.width) for s in layout.streams} == streams
    assert (geometry.num_q_heads, geometry.num_kv_heads) == (128, kv_heads)
    assert (geometry.d_qk, geometry.d_v) == (d_qk, d_v)
    assert layout.bytes_per_token == layout.bytes(1) == bytes_per_token
    assert sum(slab.row_bytes * slab.heads for slab in layout.slabs()) == bytes_per_token  # no padding anywhere here
    longer, shorter = (attend_work(layout, geometry, (), Point(1, t, 1, BF16)) for t in (2, 1))
    slope = (longer.flops - shorter.flops) / (longer.io_bytes - shorter.io_bytes)  # q and o do not grow
    assert round(slope) == flop_per_byte


@pytest.mark.parametrize("name", ["GLA-2", "MLA absorbed", "MLA fp8"])
def test_latent_values_lie_inside_the_keys(name):
    (_, geometry), *_ = TABLE[name]
    assert geometry.shares_state


def test_materialized_caches_what_absorbed_caches():
    assert mla("materialized")[0] == mla("absorbed")[0]


def test_mha_at_batch_32_and_32k_is_64_gib_per_layer():
    layout, _ = heads(128)
    assert 32 * layout.bytes(32 * 1024) == 64 * 2**30
