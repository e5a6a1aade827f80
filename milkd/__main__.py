"""`python -m milkd`."""

from milkd.main import main

main()
