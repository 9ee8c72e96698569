"""``python -m collidescope``."""

from collidescope.cli import main

if __name__ == "__main__":
    main()
