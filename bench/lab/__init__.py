"""The lab: hosts on links of their own, and the programs that run on them beside ours."""
