"""Who computes a decode step."""
