"""What a call of a saver does: every decision between two commands."""
