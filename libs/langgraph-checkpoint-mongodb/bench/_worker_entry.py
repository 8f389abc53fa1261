"""Start a worker with ``bench`` importable and nothing else of this checkout.

The checkout's own ``langgraph`` folder must not come before the peer that is being measured, so
the folder that holds ``bench`` is kept off ``sys.path``. Run with ``python -P``.
"""

import importlib.util
import sys
from pathlib import Path

here = Path(__file__).parent
spec = importlib.util.spec_from_file_location(
    "bench", here / "__init__.py", submodule_search_locations=[str(here)]
)
if spec is None or spec.loader is None:
    raise ImportError(f"{here} is no package")
package = importlib.util.module_from_spec(spec)
sys.modules["bench"] = package
spec.loader.exec_module(package)

from bench.worker import main  # noqa: E402 - importable from here on

main()
