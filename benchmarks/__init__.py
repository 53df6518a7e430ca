"""Developer benchmarks against other libraries; `python -m benchmarks --list` names the suites."""
