"""What trainings came to: means over seeds with intervals, a ranking where there may be one, a page and its figures."""
