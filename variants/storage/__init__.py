"""Where the cache's bytes lie."""
