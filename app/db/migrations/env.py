"""Alembic's entry: run the migrations on the connection that the caller brings along."""

from alembic import context

from app.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
