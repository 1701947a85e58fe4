"""Benchmarks that airspeed velocity tracks over time; see benchmarks/README.md."""
