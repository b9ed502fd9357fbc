"""What a machine can measure: readings of it, and checks that judge them. A check never reads the machine itself."""
