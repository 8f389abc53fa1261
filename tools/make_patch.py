"""Write the pull request: one patch that turns a checkout of the upstream monorepo into ours.

    python3 tools/make_patch.py UPSTREAM [--output FILE]

The patch replaces the folder libs/langgraph-checkpoint-mongodb, whole, by the one of this
repository's last commit, and is taken against the last commit of the checkout. Apply it there
with `git apply`. The checkout itself is only read.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FOLDER = "libs/langgraph-checkpoint-mongodb"
OURS = Path(__file__).resolve().parents[1]


class PatchError(Exception):
    """The patch cannot be made; the message says why and what to do."""


def git(repository: Path, *args: str, env: Mapping[str, str] | None = None) -> bytes:
    """Run git in a repository.

    Args:
        repository: Its top folder.
        *args: Git's arguments.
        env: Environment variables to add.

    Returns:
        What git printed.

    Raises:
        PatchError: Git failed; the message has its own.
    """
    command = ["git", "-C", str(repository), *args]
    done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True)
    if done.returncode:
        raise PatchError(f"{' '.join(command)}\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def refuse_unfit(ours: Path, upstream: Path) -> None:
    """Raise if either side's folder is missing or has changes that the patch would not show."""
    for side in (ours, upstream):
        if not git(side, "ls-tree", "HEAD", "--", FOLDER):
            raise PatchError(f"{side} has no {FOLDER} in its last commit; is it the top folder?")
        changed = git(side, "status", "--porcelain", "--", FOLDER).decode()
        if changed:
            raise PatchError(f"commit or remove these changes in {side} first:\n{changed}")


def make_patch(ours: Path, upstream: Path) -> bytes:
    """Return the patch that turns the folder of `upstream` into that of `ours`.

    Args:
        ours: This repository's top folder.
        upstream: The top folder of a checkout of the upstream monorepo.

    Raises:
        PatchError: A folder is missing, has uncommitted changes, or git failed.
    """
    refuse_unfit(ours, upstream)
    objects = git(ours, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    folder = git(ours, "rev-parse", f"HEAD:{FOLDER}").decode().strip()
    with tempfile.TemporaryDirectory(prefix="make-patch-") as scratch:
        # An index of our own, and our objects beside the checkout's, which stays as it is.
        env = {
            "GIT_INDEX_FILE": str(Path(scratch, "index")),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects.decode().strip(),
        }
        git(upstream, "read-tree", "HEAD", env=env)
        git(upstream, "rm", "-r", "--cached", "--quiet", "--", FOLDER, env=env)
        git(upstream, "read-tree", f"--prefix={FOLDER}/", folder, env=env)
        diff = ["diff", "--cached", "--binary", "--full-index", "--no-renames", "--no-color"]
        return git(upstream, *diff, "--no-ext-diff", "HEAD", env=env)


def main() -> int:
    """Write the patch, try it on the checkout without changing it, and say what was written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("upstream", type=Path, help="top folder of the upstream checkout")
    parser.add_argument("--output", type=Path, default=Path(f"{Path(FOLDER).name}.patch"))
    args = parser.parse_args()
    try:
        patch = make_patch(OURS, args.upstream)
        if not patch:
            raise PatchError("nothing to do: the folders are equal")
        args.output.write_bytes(patch)
        git(args.upstream, "apply", "--check", str(args.output.resolve()))
    except PatchError as error:
        print(f"make_patch: {error}", file=sys.stderr)
        return 1
    print(f"{args.output}: {len(patch):,} bytes; apply it in {args.upstream} with `git apply`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
