"""What the gateway's doors for images and objects cost, beside the servers that people use."""
