"""What a host reports about itself: events, metrics, and the course of each download."""
