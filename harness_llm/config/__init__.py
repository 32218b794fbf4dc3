"""Configuration: options, aliases, benchmarks, profiles and engine settings, resolved into a request."""
