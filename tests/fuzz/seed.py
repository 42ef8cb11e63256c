"""Writes the seed corpus from the table of cases: `python -m tests.fuzz.seed`."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.target import seeds

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Replace the seeds in `corpus/`; what the fuzzer found itself is kept elsewhere."""
    CORPUS.mkdir(exist_ok=True)
    for path in CORPUS.iterdir():
        path.unlink()
    for name, stream in seeds():
        (CORPUS / name).write_bytes(stream)


if __name__ == "__main__":
    main()
