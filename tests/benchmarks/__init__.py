"""Times as ratios within one run; `python -m tests.benchmarks` prints the table."""
