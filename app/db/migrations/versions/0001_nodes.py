"""Nodes and the registry's counters."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.String(255), nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("node_id", name="pk_nodes"),
        sa.UniqueConstraint("ordinal", name="uq_nodes_ordinal"),
    )
    op.create_table(
        "registry",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_registry"),
    )
