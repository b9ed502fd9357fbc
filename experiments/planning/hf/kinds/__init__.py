"""One file per kind of cache: what its fields are called, and which streams each layer keeps."""
