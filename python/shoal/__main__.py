"""python -m shoal: the same as the command shoal."""

import sys

from shoal._binary import main

sys.argv[0] = "shoal"
main()
