"""Floor 0, the vocabulary: pure description of what a token leaves behind and how it is read. No torch."""
