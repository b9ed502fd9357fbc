"""Two result sets against each other: which points both have, how their times differ, and how sure that is."""
