"""The lab: hosts with their own links, and programs that run on them for comparison."""
