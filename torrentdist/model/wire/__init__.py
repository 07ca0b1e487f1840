"""The messages between masters, supervisors and clients: headers, bodies and answers, each defined
once."""
