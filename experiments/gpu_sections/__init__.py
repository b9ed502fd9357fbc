"""What needs a CUDA GPU, in one run of minutes: is it right, are the clocks, how fast is it, and which tile is best."""
