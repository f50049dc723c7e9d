"""Writes the repository that a real tritonserver with its Python backend serves for --target-http.

Usage: python test/e2e/write_peer_repository.py DIR
"""

import pathlib
import sys

import models


def main() -> None:
    repository = pathlib.Path(sys.argv[1])
    for model in models.good():
        # The Python backend of that release has no BF16.
        if model.peer and "bf16" not in model.name:
            model.write_for_peer(repository)


if __name__ == "__main__":
    main()
