"""SuperBench's files, read and written: results-summary.jsonl, baseline.json, rule files."""
