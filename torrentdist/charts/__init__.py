"""Charts as SVG: values in, markup out. The report, the bench and the console draw with these.

Pure: no I/O but the package's own style sheet, no script, and no import of ours.
"""
