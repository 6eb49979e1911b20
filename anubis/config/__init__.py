"""Read what the user writes for Anubis: clusters, suites, policies, programs, criteria."""
