"""Planning: what a device would do, by arithmetic on layouts and a device's profile; no torch."""
