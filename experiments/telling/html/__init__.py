"""report.html: the same facts as report.md in one file that needs nothing beside it, with sliders over the planner."""
