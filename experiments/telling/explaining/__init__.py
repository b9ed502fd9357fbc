"""What one decode step does with its tensors, in words and tables; from plain data, never torch."""
