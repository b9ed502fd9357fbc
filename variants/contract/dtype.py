"""Element types: what caches, weights and activations are made of."""

import enum


class Dtype(enum.Enum):
    """Element types a cache, a weight or an activation can have. ``value`` is the short name used in configs."""

    F64 = "fp64"
    F32 = "fp32"
    F16 = "fp16"
    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self]

    @property
    def is_float(self) -> bool:
        """Whether an element is a number by itself (an integer code needs a scale)."""
        return self not in (Dtype.INT8, Dtype.INT4)

    def bytes(self, elements: int) -> int:
        """Whole bytes that ``elements`` take when packed: five int4 codes take three bytes."""
        return -(-elements * self.bits // 8)

    @staticmethod
    def parse(name: object) -> "Dtype":
        """The dtype called ``name`` (``bf16``, also ``bfloat16``); ValueError lists the known ones."""
        text = _ALIASES.get(str(name), str(name))
        try:
            return Dtype(text)
        except ValueError:
            known = ", ".join(d.value for d in Dtype)
            raise ValueError(f"dtype must be one of {known}; got {name!r}") from None


_BITS = {
    Dtype.F64: 64,
    Dtype.F32: 32,
    Dtype.F16: 16,
    Dtype.BF16: 16,
    Dtype.FP8_E4M3: 8,
    Dtype.INT8: 8,
    Dtype.INT4: 4,
}
_ALIASES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
}
