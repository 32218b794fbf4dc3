"""Published data sets: one module per source; conversion to token stores."""
