"""What the user asked for: options, aliases, benchmarks, profiles, engine settings; resolved into a Request."""
