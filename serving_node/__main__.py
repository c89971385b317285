"""``python -m serving_node``."""

from serving_node.compiled import use


def _start() -> None:
    use()
    # only now: nothing of what is compiled may have been imported before
    from serving_node.cli import main

    main()


if __name__ == "__main__":
    _start()
