"""Training tiny decoders from scratch, alike but for their attention: what to train, on what, and how."""
