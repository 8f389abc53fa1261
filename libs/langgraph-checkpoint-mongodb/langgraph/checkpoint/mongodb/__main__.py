"""`python -m langgraph.checkpoint.mongodb`: the operator's tool."""

from __future__ import annotations

import sys

_NEEDED = frozenset({"rich", "typer", "click"})


def main() -> None:
    """Run the tool, or say what it needs."""
    try:
        from langgraph.checkpoint.mongodb.operate.cli import app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(
            f"This command needs the package {error.name!r}. Install the tool with its extra: "
            'pip install "langgraph-checkpoint-mongodb[cli]". From Python, '
            "langgraph.checkpoint.mongodb.operate does the same without."
        )
    app()


if __name__ == "__main__":
    main()
