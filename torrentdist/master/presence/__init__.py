"""The cluster remembers its daemons, registered or not, and says what needs attention."""
