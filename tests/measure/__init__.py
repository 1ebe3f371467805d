"""Each benchmark runs once, small, and its promises hold. Runs as the step `measure`."""
