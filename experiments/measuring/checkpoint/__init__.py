"""A real decoder from a local checkpoint: transformers' own embeddings, norms and MLPs, our attention in their midst.

Nothing is downloaded, no code of a checkpoint runs, and pickle files are refused.
"""
