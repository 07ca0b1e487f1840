"""The measurements of `python -m bench`. Each module returns rows of its table."""
