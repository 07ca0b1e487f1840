"""What the leader goes on doing by itself: distributions in waves, and retention."""
