"""Records to figures and a decision record: pandas and seaborn, never torch."""
