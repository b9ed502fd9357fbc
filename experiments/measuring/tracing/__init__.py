"""Watch one step of a running module: every tensor it makes, where it arose, and what is left of it afterwards."""
