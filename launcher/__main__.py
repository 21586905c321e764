"""`python -m launcher` is the console command."""

from launcher.cli import main

if __name__ == "__main__":
    main()
