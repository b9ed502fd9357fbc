"""The harness: measure, plan and tell. Doors are the modules run with ``python -m``."""
