"""The command ``python -m numba_gradops``."""

from __future__ import annotations

import argparse
import sys

from . import __version__, _demo, _selftest, show_config, warmup
from ._dtypes import CONV2D, POOL

_BAR = 24


def _progress(done: int, total: int, what: str) -> None:
    """Draw a bar on a terminal; elsewhere write a line a step."""
    filled = _BAR * done // total
    line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{total} {what}"
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r\x1b[K{line}{end}")
    else:
        sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m numba_gradops", description="Two gradients of TensorFlow, without it."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, processor, threads, cache and CUDA state")
    demo = commands.add_parser("demo", help="layers of real networks, checked and timed")
    demo.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    for name, help_text in (
        ("selftest", "check every dtype and feature on this machine"),
        ("warmup", "compile now, so that later processes need not"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--device", help="cpu (default) or cuda")
    command.add_argument(
        "--dtypes",
        nargs="+",
        choices=tuple(dict.fromkeys(CONV2D + POOL)),
        default=["float32", "float64"],
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 means that all is well."""
    options = _parser().parse_args(argv)
    try:
        if options.command == "info":
            show_config()
        elif options.command == "warmup":
            warmup(options.dtypes, device=options.device, progress=_progress)
        elif options.command == "demo":
            return 0 if _demo.run(options.dtype) else 1
        else:
            return 0 if _selftest.run(options.device) else 1
    except (ImportError, RuntimeError, ValueError) as error:  # no such device, most often
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
