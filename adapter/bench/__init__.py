"""Benchmarks: what each part costs, measured beside a yardstick in the same run."""
