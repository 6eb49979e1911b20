"""`python -m anubis`, if the command is not on the path."""

from anubis.cli.main import main

main()
