"""What a model reads per token beside its attention layers: embeddings, feed-forward layers, head."""

from experiments.planning.capacity import PARAMETERS
from experiments.planning.hf.presets import preset
from variants.attention.grouped.spec import GroupedSpec
from variants.contract.model import ModelShape


def other_weight_elements() -> dict[str, int]:
    """Weights outside of the attention layers of every preset that reads all of them for a token, by the model's name.

    The embedding table is counted whole though a token reads one row of it: less than a tenth of these weights. Models
    with experts are left out: what a token reads there depends on how many experts the batch meets.
    """
    found = {}
    for name, parameters in PARAMETERS.items():
        raw = preset(name)
        if raw.get("kv_lora_rank"):  # ours with a latent are DeepSeek's, which have experts
            continue
        shape = ModelShape.parse({field: value for field, value in raw.items() if field != "model_type"})
        own = GroupedSpec.from_model(shape, num_kv_heads=shape.kv_heads)
        found[shape.name] = parameters - shape.num_hidden_layers * own.weight_elements
    return found
