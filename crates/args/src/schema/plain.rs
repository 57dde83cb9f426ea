//! A quick look for plain schemas: types, closed objects, lists, ranges, options. Most tools have no other, and most
//! arguments fit.
//!
//! It only ever says that a value certainly fits. What it cannot tell, and what does not fit, is asked of the validator,
//! which also has all the words. So it may know less than the validator, and must never know more.

use serde_json::{Map, Number, Value};

/// The values that a plain schema takes.
#[derive(Debug)]
pub(super) struct PlainSchema {
    types: u8,
    /// One of these; empty if anything will do.
    options: Vec<Value>,
    length: PlainRange,
    number: PlainRange,
    count: PlainRange,
    items: Option<Box<PlainSchema>>,
    object: Option<Box<Object>>,
}

#[derive(Debug)]
struct Object {
    /// By name.
    properties: Vec<PlainProperty>,
    /// How many of them must be there.
    required: usize,
    others: Others,
}

#[derive(Debug)]
struct PlainProperty {
    name: Box<str>,
    is_required: bool,
    schema: PlainSchema,
}

/// The rule for properties without a schema of their own.
#[derive(Debug)]
enum Others {
    Absent,
    Anything,
    Such(PlainSchema),
}

/// Both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlainRange {
    least: i128,
    most: i128,
}

const NULL: u8 = 1;
const BOOLEAN: u8 = 1 << 1;
const INTEGER: u8 = 1 << 2;
const FRACTION: u8 = 1 << 3;
const STRING: u8 = 1 << 4;
const ARRAY: u8 = 1 << 5;
const OBJECT: u8 = 1 << 6;
const ANY: u8 = (1 << 7) - 1;

impl PlainRange {
    const ALL: PlainRange = PlainRange { least: i128::MIN, most: i128::MAX };

    fn has(self, value: i128) -> bool {
        self.least <= value && value <= self.most
    }

    /// Between these keywords, which are whole numbers where they are there.
    fn read(schema: &Map<String, Value>, least: &str, most: &str) -> Option<PlainRange> {
        let end = |keyword, otherwise| match schema.get(keyword) {
            Some(Value::Number(number)) => whole(number),
            Some(_) => None,
            None => Some(otherwise),
        };
        Some(PlainRange { least: end(least, i128::MIN)?, most: end(most, i128::MAX)? })
    }
}

impl PlainSchema {
    /// The schema, if it is plain.
    pub(super) fn of(schema: &Value) -> Option<PlainSchema> {
        let empty = Map::new();
        let schema = match schema {
            Value::Bool(true) => &empty,
            Value::Object(schema) => schema,
            Value::Null | Value::Bool(false) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return None;
            }
        };
        if !schema.keys().all(|keyword| is_known(keyword)) {
            return None;
        }
        let options = match (schema.get("enum"), schema.get("const")) {
            (Some(Value::Array(options)), None) if !options.is_empty() => options.clone(),
            (None, Some(only)) => vec![only.clone()],
            (None, None) => Vec::new(),
            _ => return None,
        };
        let items = match schema.get("items") {
            Some(items) => Some(Box::new(PlainSchema::of(items)?)),
            None => None,
        };
        Some(PlainSchema {
            types: types(schema.get("type"))?,
            options,
            length: PlainRange::read(schema, "minLength", "maxLength")?,
            number: PlainRange::read(schema, "minimum", "maximum")?,
            count: PlainRange::read(schema, "minItems", "maxItems")?,
            items,
            object: Object::of(schema)?.map(Box::new),
        })
    }

    /// Whether the value certainly fits. Goes as deep as the schema was written, which its guards bound.
    pub(super) fn fits(&self, value: &Value) -> bool {
        let fits = match value {
            Value::Null => self.types & NULL != 0,
            Value::Bool(_) => self.types & BOOLEAN != 0,
            Value::Number(number) => self.fits_number(number),
            Value::String(text) => self.types & STRING != 0 && self.fits_length(text),
            Value::Array(items) => {
                self.types & ARRAY != 0
                    && (self.count == PlainRange::ALL || self.count.has(items.len() as i128))
                    && self.items.as_ref().is_none_or(|schema| items.iter().all(|item| schema.fits(item)))
            }
            Value::Object(map) => {
                self.types & OBJECT != 0 && self.object.as_ref().is_none_or(|object| object.fits(map))
            }
        };
        fits && (self.options.is_empty() || self.options.contains(value))
    }

    /// A fraction may be whole, or in range after rounding: the validator knows.
    fn fits_number(&self, number: &Number) -> bool {
        match whole(number) {
            Some(number) => {
                self.types & INTEGER != 0 && (self.number == PlainRange::ALL || self.number.has(number))
            }
            None => self.types & FRACTION != 0 && self.number == PlainRange::ALL,
        }
    }

    fn fits_length(&self, text: &str) -> bool {
        self.length == PlainRange::ALL || self.length.has(text.chars().count() as i128)
    }
}

impl Object {
    /// The rules for the properties of an object, if there are any; the outer `None` if it is not plain.
    fn of(schema: &Map<String, Value>) -> Option<Option<Object>> {
        let mut properties = Vec::new();
        match schema.get("properties") {
            Some(Value::Object(named)) => {
                for (name, schema) in named {
                    let (name, schema) = (name.as_str().into(), PlainSchema::of(schema)?);
                    properties.push(PlainProperty { name, is_required: false, schema });
                }
            }
            Some(_) => return None,
            None => {}
        }
        properties.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let required = match schema.get("required") {
            Some(Value::Array(names)) => names.as_slice(),
            Some(_) => return None,
            None => &[],
        };
        for name in required {
            // One without a schema of its own would have to be looked for.
            let name = name.as_str()?;
            let at = properties.binary_search_by(|known| (*known.name).cmp(name)).ok()?;
            properties[at].is_required = true;
        }
        let others = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => Others::Absent,
            Some(Value::Bool(true)) | None => Others::Anything,
            Some(schema) => Others::Such(PlainSchema::of(schema)?),
        };
        if properties.is_empty() && matches!(others, Others::Anything) {
            return Some(None);
        }
        let required = properties.iter().filter(|property| property.is_required).count();
        Some(Some(Object { properties, required, others }))
    }

    fn fits(&self, map: &Map<String, Value>) -> bool {
        let (mut required, mut next) = (0, 0);
        for (name, value) in map {
            let Some(at) = self.find(name, next) else {
                match &self.others {
                    Others::Absent => return false,
                    Others::Anything => continue,
                    Others::Such(schema) if schema.fits(value) => continue,
                    Others::Such(_) => return false,
                }
            };
            let property = &self.properties[at];
            required += usize::from(property.is_required);
            next = at + 1;
            if !property.schema.fits(value) {
                return false;
            }
        }
        required == self.required
    }

    /// The property of this name: mostly the one behind the last, since both are in order.
    fn find(&self, name: &str, next: usize) -> Option<usize> {
        match self.properties.get(next) {
            Some(property) if *property.name == *name => Some(next),
            _ => self.properties.binary_search_by(|known| (*known.name).cmp(name)).ok(),
        }
    }
}

/// Whether a keyword is understood here, or says nothing about what fits.
fn is_known(keyword: &str) -> bool {
    matches!(
        keyword,
        "type" | "enum" | "const" | "minLength" | "maxLength" | "minimum" | "maximum" | "minItems" | "maxItems"
            | "items" | "properties" | "required" | "additionalProperties"
            // These only tell.
            | "title" | "description" | "default" | "examples" | "deprecated" | "readOnly" | "writeOnly" | "$comment"
    )
}

fn types(written: Option<&Value>) -> Option<u8> {
    let named = |name: &Value| match name.as_str()? {
        "null" => Some(NULL),
        "boolean" => Some(BOOLEAN),
        "integer" => Some(INTEGER),
        "number" => Some(INTEGER | FRACTION),
        "string" => Some(STRING),
        "array" => Some(ARRAY),
        "object" => Some(OBJECT),
        _ => None,
    };
    match written {
        None => Some(ANY),
        Some(Value::Array(names)) => names.iter().try_fold(0, |types, name| Some(types | named(name)?)),
        Some(name) => named(name),
    }
}

/// The number, if it is written as a whole one.
fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn validator(schema: &Value) -> jsonschema::Validator {
        jsonschema::draft202012::options().build(schema).unwrap()
    }

    fn name() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["a", "b", "c", "d", "ä", ""]).prop_map(str::to_string)
    }

    /// Few of each kind, so that schemas and values often meet.
    fn scalar() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(1),
            json!(-1),
            json!(2),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1.0),
            json!(1.5),
            json!(-0.0),
            json!(1e300),
            json!(""),
            json!("a"),
            json!("ab"),
            json!("äöü"),
        ])
    }

    fn value() -> impl Strategy<Value = Value> {
        scalar().prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name(), inner, 0..4)
                    .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    /// A keyword and what it says. Some are none that is understood here.
    fn keyword(inner: BoxedStrategy<Value>) -> impl Strategy<Value = (String, Value)> {
        let types = || {
            prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"])
        };
        let bound = prop::sample::select(vec![json!(0), json!(1), json!(2), json!(1.5), json!(1e19)]);
        let size = (0..4u8).prop_map(Value::from);
        fn named(name: &'static str) -> impl Fn(Value) -> (String, Value) {
            move |value| (name.to_string(), value)
        }
        prop_oneof![
            3 => types().prop_map(Value::from).prop_map(named("type")),
            1 => prop::collection::btree_set(types(), 1..4).prop_map(|all| named("type")(json!(all))),
            1 => prop::collection::vec(scalar(), 1..4).prop_map(Value::from).prop_map(named("enum")),
            1 => scalar().prop_map(named("const")),
            1 => (prop::sample::select(vec!["minLength", "maxLength", "minItems", "maxItems"]), size)
                .prop_map(|(name, size)| named(name)(size)),
            1 => (prop::sample::select(vec!["minimum", "maximum"]), bound).prop_map(|(name, end)| named(name)(end)),
            2 => inner.clone().prop_map(named("items")),
            3 => prop::collection::btree_map(name(), inner.clone(), 0..4)
                .prop_map(|map| named("properties")(map.into_iter().collect::<Map<_, _>>().into())),
            2 => prop::collection::btree_set(name(), 0..3).prop_map(|all| named("required")(json!(all))),
            2 => prop_oneof![any::<bool>().prop_map(Value::from), inner.clone()].prop_map(named("additionalProperties")),
            1 => any::<String>().prop_map(Value::from).prop_map(named("description")),
            1 => inner.prop_map(named("not")),
            1 => Just(named("uniqueItems")(json!(true))),
        ]
    }

    fn schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![4 => Just(json!({})), 1 => any::<bool>().prop_map(Value::from)];
        leaf.prop_recursive(3, 32, 4, |inner| {
            prop::collection::vec(keyword(inner.boxed()), 0..4)
                .prop_map(|all| all.into_iter().collect::<Map<_, _>>().into())
        })
    }

    /// Whether a number is written there that is not whole: then the validator may know what is not known here.
    fn has_fraction(value: &Value) -> bool {
        match value {
            Value::Number(number) => whole(number).is_none(),
            Value::Array(items) => items.iter().any(has_fraction),
            Value::Object(map) => map.values().any(has_fraction),
            Value::Null | Value::Bool(_) | Value::String(_) => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn what_certainly_fits_is_valid(schema in schema(), values in prop::collection::vec(value(), 8)) {
            let Some(plain) = PlainSchema::of(&schema) else { return Ok(()) };
            let validator = validator(&schema);
            for value in &values {
                let (quick, valid) = (plain.fits(value), validator.is_valid(value));
                prop_assert!(valid || !quick, "{schema} does not take {value}");
                let exact = !has_fraction(&schema) && !has_fraction(value);
                prop_assert!(!exact || quick == valid, "{schema} takes {value}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_not_plain() {
        let other = [
            "pattern",
            "$ref",
            "allOf",
            "not",
            "format",
            "uniqueItems",
            "exclusiveMinimum",
            "$id",
            "unheard_of",
        ];
        for keyword in other {
            let schema = json!({"type": "object", "properties": {"a": {keyword: json!({})}}});
            assert!(PlainSchema::of(&schema).is_none(), "{keyword}");
        }
        assert!(PlainSchema::of(&json!({"required": ["a"]})).is_none(), "it would have to be looked for");
        assert!(PlainSchema::of(&json!(false)).is_none());
    }

    #[test]
    fn the_usual_schema_is_plain() {
        let schema = json!({
            "type": "object",
            "properties": {"to": {"type": "string", "description": "whom"}, "cc": {"type": "array", "items": {"type": "string"}}},
            "required": ["to"],
            "additionalProperties": false,
        });
        let plain = PlainSchema::of(&schema).unwrap();
        assert!(plain.fits(&json!({"to": "a", "cc": ["b"]})));
        for unfit in [
            json!({"cc": []}),
            json!({"to": 1}),
            json!({"to": "a", "bcc": "b"}),
            json!({"to": "a", "cc": [1]}),
        ] {
            assert!(!plain.fits(&unfit), "{unfit}");
        }
    }
}
