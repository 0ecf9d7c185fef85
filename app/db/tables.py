"""The tables. Portable between SQLite and PostgreSQL.

What they hold lives in memory and is read as a whole, so a node, a model or a deployment is one document; what
stands beside it is what the database itself must know.
"""

from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", String(255), primary_key=True),
    Column("ordinal", BigInteger, nullable=False, unique=True),
    Column("revision", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
)
"""``record`` is JSON, see ``schemas.stored``."""

models = Table(
    "models",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
)
"""``record`` is JSON, see ``schemas.stored``."""

deployments = Table(
    "deployments",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
)
"""``record`` is JSON, see ``schemas.stored``."""

registry = Table(
    "registry",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""The registry's counters, ``revision`` and ``ordinal``."""
