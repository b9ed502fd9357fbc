"""Everything that runs kernels and reads clocks. Works without Hydra and without pandas."""
