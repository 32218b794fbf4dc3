"""Report: one self-contained HTML file of runs, submission trees and tuning sessions. `harness-llm report`."""
