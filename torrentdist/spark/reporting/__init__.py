"""`torrentdist report`: from files of events to tables and one page."""
