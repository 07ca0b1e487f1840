"""`torrentdist report`: turns files of events into tables and a page."""
