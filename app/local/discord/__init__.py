"""A Discord on the loopback address that is as strict as the real one: for tests and demonstrations.

Its rules are Discord's own (identify budget, rate limits, who may ask); its answers can be scripted. No test ever asks
the real one.
"""
