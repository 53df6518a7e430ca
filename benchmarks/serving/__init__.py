"""Throughput and latency of `elman serve` under streams of completions, beside peers."""
