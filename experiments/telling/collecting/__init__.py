"""Many files of records as one table."""
