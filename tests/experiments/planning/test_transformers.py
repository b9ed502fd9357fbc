"""Our counts against the tensors in the caches of tiny models, for every decoder type that transformers ships.

Two habits of transformers are counted in: a windowed layer stores one token less than its window (the current token is
joined to it for the step only), and a convolution over k tokens stores k columns where the last k - 1 are enough.
"""

import json

import pytest

from experiments.planning.hf import classes
from experiments.planning.hf.fields import Undecided
from experiments.planning.hf.read import KNOWN, read_config
from experiments.planning.hf.types import CLASS_OF, REMOTE
from variants.contract.keep import Window
from variants.contract.layout import Source

# Types whose tensors differ from the count, and why
DIFFERS = {
    "gpt_neo": "local layers store every token; only the mask is local",
    "recurrent_gemma": "states are attributes of the modules",
    "rwkv": "states are an output of the model, not a cache",
}
# Types that cannot be built tiny from their own class alone, and why
NOT_BUILT = {
    "csm": "brings an audio codec of full size",
    "dbrx": "its attention asks its configuration for a field that the class does not have",
    "deepseek_ocr2_text": "needs the whole multimodal configuration",
    "ernie4_5_vl_moe_text": "needs the whole multimodal configuration",
    "minimax": "takes no cache but its own, which keeps linear states beside the layers",
    "moshi": "brings an audio codec of full size",
    "phi4_multimodal": "brings vision and audio encoders of full size",
    "step3p5": "needs the whole multimodal configuration",
    "voxtral_realtime_text": "needs the whole multimodal configuration",
}
TYPES = sorted(KNOWN - REMOTE - set(CLASS_OF))


def counted(model, tokens):
    """Elements of text entries and of states as transformers keeps them after ``tokens`` tokens."""
    kept = state = 0
    for stream, layers in model.streams:
        if stream.source is Source.STATE:
            columns = stream.keep.entries(1) + (stream.name == "conv")
            state += layers * columns * stream.heads * stream.width
        elif stream.source is Source.TEXT:
            window = isinstance(stream.keep, Window)
            entries = min(tokens, stream.keep.size - 1) if window else stream.keep.entries(tokens)
            kept += layers * entries * stream.heads * stream.width
    return kept, state


def read(config, model_type):
    raw = {**json.loads(json.dumps(config.to_dict(), default=str)), "model_type": model_type}
    try:
        return read_config(raw, model_type)
    except Undecided as question:
        return read_config(raw, model_type, defaults=classes.ask([question.class_name]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", TYPES)
def test_caches_hold_what_we_count(model_type):
    from tests.experiments.planning.tiny import PREFILL, STEPS, cached_elements, config_of

    if model_type in NOT_BUILT:
        pytest.skip(NOT_BUILT[model_type])
    config = config_of(model_type)
    ours = counted(read(config, model_type), PREFILL + STEPS)
    theirs = cached_elements(config)
    assert (theirs != ours) if model_type in DIFFERS else (theirs == ours)


def test_exceptions_are_types_that_we_read():
    assert set(DIFFERS) | set(NOT_BUILT) <= set(TYPES)
    assert len(TYPES) - len(DIFFERS) - len(NOT_BUILT) > 100
