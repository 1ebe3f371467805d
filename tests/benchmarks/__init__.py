"""The benchmarks, small: that they run, that they count right, and that their promises hold."""
