"""The documentation shows the sources that are tested."""

from __future__ import annotations

import unittest
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
SHOWN = {
    "docs/quickstart-python.md": ["clients/python/examples/orders.py"],
    "docs/quickstart-typescript.md": ["clients/typescript/examples/orders.mjs"],
    "docs/agent-frameworks.md": [
        "clients/python/examples/adapters/with_openai_agents.py",
        "clients/python/examples/adapters/with_langgraph.py",
        "clients/python/examples/adapters/with_pydantic_ai.py",
        "clients/typescript/examples/with_ai_sdk.mjs",
    ],
}


class Docs(unittest.TestCase):
    def test_each_listing_is_the_file_that_is_tested(self) -> None:
        for page, files in SHOWN.items():
            text = (ROOT / page).read_text()
            for file in files:
                self.assertIn((ROOT / file).read_text(), text, f"{page} shows another {file}")


if __name__ == "__main__":
    unittest.main()
