"""A Flask app that serves one prepared string, from the file that PREPARED names: health.petals.dev's way. For benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask, Response

app = Flask(__name__)
PREPARED = Path(os.environ["PREPARED"]).read_text()


@app.route("/api/v1/state")
def state() -> Response:
    return Response(PREPARED, content_type="application/json")
