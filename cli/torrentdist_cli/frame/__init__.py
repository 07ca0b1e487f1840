"""The parts that all commands share: options, signals, failures, output and progress."""
