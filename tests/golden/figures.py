"""Published figures, written from the facts; units: bytes (bf16), one token, all layers, unless a name says otherwise.

Sources: DeepSeek-V3 hardware paper (arXiv 2505.09343) table 1; DeepSeek-V2 (arXiv 2405.04434) table 1 and appendix D;
GTA/GLA (arXiv 2505.21487) table of bytes per token and layer; Jamba-1.5 (arXiv 2408.12570) table 1; the models' own
config.json for the rest.
"""

# conf/model name: bytes per token
BYTES_PER_TOKEN = {
    "deepseek_v3": 70_272,
    "qwen2_5_72b": 327_680,
    "llama3_1_405b": 516_096,
    "llama3_70b": 327_680,
    "smollm2_135m": 23_040,
    "deepseek_v2_lite": 31_104,
    "llama2_7b": 524_288,
    "llama3_8b": 131_072,
}

LLAMA3_70B_AT_8K = 2_684_354_560  # 2.5 GiB: the familiar "2.5 GB"

# Bytes per token, layer and device of 16 heads with d = 128 at tp 1, 2, 4
GTA_GLA_PAPER = {
    "MHA": (8192, 4096, 2048),
    "GQA-4": (2048, 1024, 512),
    "MQA": (512, 512, 512),
    "MLA": (1152, 1152, 1152),
    "GTA-4": (1152, 640, 384),
    "GLA-2": (1152, 640, 640),
}

# Elements per token of DeepSeek-V2's ablation: layers, heads (d = 128), MHA elements, MLA (512 + 64) elements
DEEPSEEK_V2_ABLATION = {"small MoE": (27, 16, 110_592, 15_552), "large MoE": (60, 56, 860_160, 34_560)}

# Bytes that engines and papers report for whole models: golden model, cache dtype, tokens, tp, bytes on one device.
# Sources beside them; each is bf16 or one byte per element, windows left out where the source does so.
REPORTED = {
    "vLLM issue 21348, Qwen3-235B at tp 4, K and V per token": ("Qwen3-235B", "bf16", 1, 4, 48_128),
    "hf-mem README, MiniMax-M2 in fp8 at 196 608 tokens": ("MiniMax-M2", "fp8", 196_608, 1, 24_964_497_408),
    "LM Studio issue 1862, Qwen3.6-27B at 262 144 tokens": ("Qwen3.6-27B", "fp16", 262_144, 1, 16_384 * 2**20),
}

# GiB at 256K tokens: layers, query heads, kv heads (d = 128), GiB. Its "252" for Llama-3.1-405B is wrong: 126
JAMBA_PAPER_GIB = {
    "Mistral-7B": (32, 32, 8, 32),
    "Mixtral-8x7B": (32, 32, 8, 32),
    "Mixtral-8x22B": (56, 48, 8, 56),
    "Mistral-Large-2": (88, 96, 8, 88),
    "Llama-3.1-8B": (32, 32, 8, 32),
    "Llama-3.1-70B": (80, 64, 8, 80),
    "Llama-3.1-405B": (126, 128, 8, 126),
}

# Fields in which a preset is another release than the real file beside the row below
OTHER_RELEASE = {"llama3_8b": {"rope_scaling"}, "llama3_70b": {"rope_scaling"}, "smollm2_135m": {"rope_theta"}}

# Row of ../shared/golden/models.csv: conf/model name
MODELS_CSV = {
    "Llama-2-7b-hf": "llama2_7b",
    "Meta-Llama-3.1-8B": "llama3_8b",  # the same sizes as Llama-3
    "Meta-Llama-3.1-70B": "llama3_70b",
    "Meta-Llama-3.1-405B": "llama3_1_405b",
    "Qwen2.5-72B-Instruct": "qwen2_5_72b",
    "DeepSeek-V2-Lite": "deepseek_v2_lite",
    "DeepSeek-V3": "deepseek_v3",
    "SmolLM-135M": "smollm2_135m",  # the same sizes as SmolLM2
}
