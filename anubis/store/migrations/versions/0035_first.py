"""The tables of 1.0.0rc1. Nothing to do: new histories begin with the tables of today."""

revision = "0035"
down_revision = None


def upgrade() -> None:
    pass
