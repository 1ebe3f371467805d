"""Redis restarts, fails over, fills up, is slow or cut off; pods freeze and die by halves. `.ci/run trouble`."""
