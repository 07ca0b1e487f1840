"""What a host tells about itself: events, metrics, the story of each download."""
