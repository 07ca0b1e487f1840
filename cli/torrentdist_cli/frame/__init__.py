"""What all commands share: options, signals, failures, output, progress."""
