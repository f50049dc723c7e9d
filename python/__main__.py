"""What the server starts: python <this folder>."""

import sys

if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or newer is needed, and %s is %s; choose another with --python" % (sys.executable, sys.version.split()[0]))

from shoal._worker import main  # noqa: E402  only now can it be read

main()
