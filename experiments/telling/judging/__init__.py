"""Rows of quality told: bytes per token against perplexity, before and after a short distillation."""
