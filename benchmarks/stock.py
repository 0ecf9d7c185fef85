"""The yardstick: what a FastAPI tutorial would write for the same report. Model in, model out, a dict in between."""

from fastapi import FastAPI
from pydantic import BaseModel


class Device(BaseModel):
    """A device of a report."""

    device: str
    name: str
    mem_bytes: int | None = None
    unified: bool = False
    gflops: float | None = None
    mem_gbps: float | None = None
    mem_avail: int | None = None


class Config(BaseModel):
    """A report's configuration."""

    device: str = "cpu"
    max_ram_gb: float | None = None
    layers: str | None = None
    ssh: str | None = None
    precision: str | None = None
    kv_cache: str | None = None


class Report(BaseModel):
    """A report."""

    addr: str
    os: str | None = None
    cores: int | None = None
    ram_total: int
    ram_avail: int
    disk_free: int | None = None
    gflops: float | None = None
    io_mbps: float | None = None
    devices: list[Device] = []
    config: Config = Config()
    labels: dict[str, str] = {}
    node_id: str | None = None


app = FastAPI()
nodes: dict[str, Report] = {}


@app.post("/nodes/register")
async def register(report: Report) -> Report:
    """Keep the report."""
    nodes[report.node_id or report.addr] = report
    return report
