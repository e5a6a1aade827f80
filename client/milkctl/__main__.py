"""`python -m milkctl`."""

from milkctl.main import main

main()
