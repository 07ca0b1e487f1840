"""What masters, supervisors and clients send each other: the JSON of requests and answers, defined once."""
