"""Is the block server in this container ONLINE? Asks its /readyz where SEPAL_METRICS_PORT is set; without it a server that runs
counts as well. Needs the standard library only.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 4.0


def main() -> int:
    port = os.environ.get("SEPAL_METRICS_PORT", "")
    if not port:
        return 0
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=TIMEOUT_S) as answer:
            said: str = answer.read().decode()
    except urllib.error.HTTPError as error:
        said = error.read().decode()
        print(said.strip())  # noqa: T201
        return 1
    except OSError as error:
        print(f"no answer ({error})")  # noqa: T201
        return 1
    print(said.strip())  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
