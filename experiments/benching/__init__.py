"""Speed to reach: our kernels and whole steps against torch's and transformers', with a target for each ratio."""
