"""Models that are trained: of risk, and of running jobs. The only torch in the product."""
