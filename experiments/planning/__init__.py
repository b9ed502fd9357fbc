"""Planning: what a model's cache weighs, what fits where, what a device would do. Arithmetic only: no torch."""
