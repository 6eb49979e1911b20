"""The history in SQL: what was planned, measured and judged. Only this folder knows SQLAlchemy."""
