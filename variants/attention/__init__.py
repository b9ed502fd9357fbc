"""One folder per way of remembering a token."""
