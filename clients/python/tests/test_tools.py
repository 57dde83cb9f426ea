"""Functions become tools: schemas, descriptions and arguments, without a server."""

from __future__ import annotations

import dataclasses
import enum
import unittest
from typing import Annotated, Any, Literal, Optional

from windlass import Context, tool
from windlass._schema import plain, schema_of, value_of


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Place:
    city: str
    zip: Optional[int] = None


class Tools(unittest.TestCase):
    def test_a_function_is_described_by_its_hints_and_its_docstring(self) -> None:
        @tool(effect="keyed", secrets=["github"], claims=[])
        def fetch(url: str, depth: int = 1, *, ctx: Context) -> str:
            """Fetches a page.

            It follows links.

            Args:
                url: The address,
                    with its scheme.
                depth (int): How deep.

            Returns:
                The page.
            """
            return url

        self.assertEqual(
            fetch.manifest,
            {
                "name": "fetch",
                "description": "Fetches a page.\n\nIt follows links.",
                "class": "keyed",
                "secrets": ["github"],
                "claims": [],
                "input": {
                    "type": "object",
                    "properties": {
                        "url": {"type": "string", "description": "The address, with its scheme."},
                        "depth": {"type": "integer", "description": "How deep."},
                    },
                    "additionalProperties": False,
                    "required": ["url"],
                },
            },
        )
        self.assertEqual(fetch.context, "ctx")
        self.assertEqual(fetch("x", ctx=None), "x")

    def test_schemas_of_hints(self) -> None:
        cases: list[tuple[Any, Any]] = [
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
            (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            (Literal["a", "b"], {"enum": ["a", "b"]}),
            (Annotated[str, "A name."], {"type": "string", "description": "A name."}),
            (Colour, {"enum": ["red"]}),
            (Any, {}),
        ]
        for hint, schema in cases:
            with self.subTest(hint=hint):
                self.assertEqual(schema_of(hint), schema)
        self.assertEqual(schema_of(Place)["required"], ["city"])

    def test_values_become_what_the_hints_say(self) -> None:
        self.assertEqual(value_of(list[Place], [{"city": "Ulm"}]), [Place("Ulm")])
        self.assertEqual(value_of(Optional[Colour], "red"), Colour.RED)
        self.assertIsNone(value_of(Optional[Colour], None))
        self.assertEqual(plain({"at": Place("Ulm"), "in": (Colour.RED,)}), {"at": {"city": "Ulm", "zip": None}, "in": ["red"]})

    def test_a_model_of_pydantic_is_an_argument(self) -> None:
        try:
            import pydantic
        except ImportError:
            self.skipTest("pydantic is not installed")

        class Query(pydantic.BaseModel):
            text: str
            limit: int = 3

        self.assertEqual(schema_of(Query)["required"], ["text"])
        self.assertEqual(value_of(Query, {"text": "x"}).limit, 3)
        self.assertEqual(plain(Query(text="x")), {"text": "x", "limit": 3})

    def test_arguments_without_names_are_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "names each"):
            tool(lambda *args: args)


if __name__ == "__main__":
    unittest.main()
