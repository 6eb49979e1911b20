"""The command, from its first instant: what ends it while it still loads is no verdict either."""

import sys
import traceback

NO_VERDICT = 2  # Python itself ends with 1, which says "defective" here
INTERRUPTED = 130  # as in anubis/core/errors.py, which is not loaded yet


def main() -> None:
    try:
        from anubis.cli.main import main as begin

        begin()
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except MemoryError:
        _fail("out of memory while it was loaded: free some memory, or allow more (ulimit -v)")
    except Exception:
        traceback.print_exc()
        _fail("it could not be loaded, see above: install it again")


def _fail(reason: str, code: int = NO_VERDICT) -> None:
    print(f"anubis: error: {reason}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
