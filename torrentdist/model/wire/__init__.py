"""What masters, supervisors and clients send each other: headers, bodies and answers, each defined once."""
