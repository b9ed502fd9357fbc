"""What an exception means for a point."""

import torch

from experiments.measuring.messages import Failed


def failure(error: Exception) -> Failed:
    """``oom`` if memory ran out, else ``error`` with what it says."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return Failed("oom", f"out of memory: {error}")
    status = "oom" if "can't allocate memory" in str(error) else "error"  # torch's CPU allocator
    return Failed(status, f"{type(error).__name__}: {error}")
