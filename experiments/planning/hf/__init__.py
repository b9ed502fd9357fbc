"""A Hugging Face ``config.json`` as the cache that each layer of the model keeps. Nothing in a file is executed."""
