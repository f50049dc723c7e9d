"""What the server starts: python <this folder>."""

from shoal._worker import main

main()
