"""Helpers that the published package exposes and someone may import."""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pymongo.driver_info import DriverInfo

from langgraph.checkpoint.mongodb._layout.metadata import dumps_metadata, loads_metadata

__all__ = ["DRIVER_METADATA", "dumps_metadata", "loads_metadata"]


def _version() -> str | None:
    # An application that is frozen may come without the package's metadata.
    try:
        return version("langgraph-checkpoint-mongodb")
    except PackageNotFoundError:
        return None


DRIVER_METADATA = DriverInfo(name="Langgraph", version=_version())


def _append_client_metadata(client: Any) -> None:
    """Name this library in what `client` tells its server about itself."""
    append = getattr(client, "append_metadata", None)
    # Before PyMongo 4.14 the attribute is a database of that name.
    if inspect.ismethod(append):
        told = client.options.pool_options.metadata["driver"]["name"].split("|")
        # 4.14.0 says it once for each saver on the client, until the server refuses that much.
        if DRIVER_METADATA.name not in told:
            append(DRIVER_METADATA)
