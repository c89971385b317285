"""``python -m serving_node``."""

from serving_node.cli import main

if __name__ == "__main__":
    main()
