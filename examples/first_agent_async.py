"""The same first agent on asyncio: every method of `Milk` is a coroutine of `AsyncMilk`.

python examples/first_agent_async.py
"""

import asyncio

from milk_client import AsyncMilk, NoDaemon


async def main() -> None:
    """One short stay of one agent; several requests at once share one connection."""
    try:
        async with AsyncMilk() as milk:
            await milk.record("Integration tests need the postgres container running")
            facts, block = await asyncio.gather(milk.get("integration tests"), milk.inject("run the tests"))
            for fact in facts:
                print(f"recalled {fact.content!r}, strength {fact.w:.2f}")
            print(block.text)
            await milk.turn()
    except NoDaemon as error:  # every error says what happened and what to do
        print(error)


if __name__ == "__main__":
    asyncio.run(main())
