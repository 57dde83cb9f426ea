//! Sets of JSON types: what a schema may take at a place.

use super::places::SchemaPlaces;
use crate::limits::ArgLimits;
use crate::schema::Schema;
use serde_json::{Map, Value};

/// A set of types. It holds at least the types that a schema takes, so a value whose type is not in it does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Types = Types(0);
    pub(super) const NULL: Types = Types(1);
    pub(super) const BOOLEAN: Types = Types(1 << 1);
    pub(super) const INTEGER: Types = Types(1 << 2);
    pub(super) const FRACTION: Types = Types(1 << 3);
    pub(super) const STRING: Types = Types(1 << 4);
    pub(super) const ARRAY: Types = Types(1 << 5);
    pub(super) const OBJECT: Types = Types(1 << 6);
    pub(super) const ANY: Types = Types((1 << 7) - 1);

    /// The types that the schema takes as the whole value.
    pub(super) fn at_root(schema: &Schema, limits: &ArgLimits) -> Types {
        let mut places = SchemaPlaces::new(schema, limits);
        let root = places.root();
        places.types(root)
    }

    /// The types that `type`, `enum` and `const` of one schema leave, without its references.
    pub(super) fn written(schema: &Map<String, Value>) -> Types {
        let mut types = Types::ANY;
        match schema.get("type") {
            Some(Value::String(name)) => types = types.and(Types::named(name)),
            Some(Value::Array(names)) => {
                let all = names.iter().filter_map(Value::as_str).map(Types::named);
                types = types.and(all.fold(Types::NONE, Types::or));
            }
            _ => {}
        }
        if let Some(Value::Array(options)) = schema.get("enum") {
            types = types.and(options.iter().map(Types::of).fold(Types::NONE, Types::or));
        }
        match schema.get("const") {
            Some(only) => types.and(Types::of(only)),
            None => types,
        }
    }

    fn named(name: &str) -> Types {
        match name {
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "integer" => Types::INTEGER,
            "number" => Types::INTEGER.or(Types::FRACTION),
            "string" => Types::STRING,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            // Not one that a compiled schema has.
            _ => Types::ANY,
        }
    }

    /// The type of a value. A number is both kinds: 1.0 is an integer to a schema.
    pub(super) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(_) => Types::INTEGER.or(Types::FRACTION),
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(super) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    pub(super) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// Whether they have a type in common.
    pub(super) fn overlaps(self, other: Types) -> bool {
        self.and(other) != Types::NONE
    }

    pub(super) fn without(self, other: Types) -> Types {
        Types(self.0 & !other.0)
    }
}
