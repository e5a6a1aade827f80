"""A first agent: attach, remember, recall, signal the end of a turn. Needs only `pip install milkd`.

    python examples/first_agent.py

The daemon is started if none runs; what is remembered lies under ~/.milk (or MILK_HOME).
"""

from milk_client import Milk


def main() -> None:
    """One short stay of one agent."""
    with Milk() as milk:  # the session is this project's, by the folder we stand in
        said = milk.record("The user prefers uv over pip", producer="user")
        print(f"recorded {said.id[:8]}: {said.outcome}")

        for fact in milk.get("package manager uv"):
            print(f"recalled {fact.content!r}, strength {fact.w:.2f}, from {fact.scope}")

        block = milk.inject("set up the project")  # goes before the agent's own prompt
        print(block.text)

        report = milk.turn()  # the turn is over: memory consolidates
        print(f"turn: {report.promoted} promoted, {report.promotion_deferred} deferred, {report.pruned} faded")


if __name__ == "__main__":
    main()
