"""Alembic's way in: the connection of whoever opens the database, inside its transaction, so
that an upgrade happens whole or not at all."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
