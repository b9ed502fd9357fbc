"""The figures, one idea per file; ``style`` and ``canvas`` hold what they share."""
