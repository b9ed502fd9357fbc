"""Shared by all tests; that shapes in ``variants`` are checked is the work of ``tests/shapes.py``."""

import torch

torch.set_num_threads(1)  # tensors are tiny and tests run side by side: a second thread only waits
