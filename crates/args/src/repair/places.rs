//! The schemas of a place in a value, as far as they can be decided without looking at the value.
//!
//! A place is the set of all schemas that the value there must fit: through `$ref` and `allOf`, and through `anyOf` or
//! `oneOf` where only one of the alternatives takes values of that type. Other keywords (`if`, `not`, patterns, dynamic
//! references) are ignored: they can only forbid more, and the repaired value is validated as a whole.
//!
//! One set is one place however it is reached, so the number of places is bounded by what a schema unfolds to and not
//! by the value. All work is counted; when it reaches the bound of a validation, the repair is given up.

use super::types::Types;
use crate::limits::ArgLimits;
use crate::schema::{References, Schema};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A place that is known; a number in the list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceId(usize);

/// The places of a schema, found as they are asked for.
pub(super) struct SchemaPlaces<'a> {
    schema: &'a Value,
    references: References<'a>,
    known: Vec<SchemaPlace<'a>>,
    /// Places by the addresses of their schemas.
    by_schemas: BTreeMap<Vec<usize>, PlaceId>,
    /// Where a step leads from a place.
    steps: BTreeMap<(PlaceId, PlaceStep<'a>), PlaceId>,
    work_left: u64,
}

struct SchemaPlace<'a> {
    /// Each an object.
    schemas: Vec<&'a Value>,
    /// Nothing fits: one of them is `false`.
    is_closed: bool,
    types: Option<Types>,
    properties: Option<Rc<Properties<'a>>>,
}

/// The rules for the properties of an object at a place.
#[derive(Debug, Default)]
pub(super) struct Properties<'a> {
    /// Those with a name, and whether they may be there at all.
    named: BTreeMap<&'a str, bool>,
    /// Those that must be there.
    pub(super) required: BTreeSet<&'a str>,
    /// By spelling without case and separators; none if several share one.
    by_spelling: BTreeMap<String, Option<&'a str>>,
    /// Whether no others may be there.
    pub(super) no_others: bool,
    /// Whether others are told apart by patterns.
    pub(super) has_patterns: bool,
}

impl<'a> Properties<'a> {
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// The only property that may be there and has this spelling.
    pub(super) fn spelt_like(&self, name: &str) -> Option<&'a str> {
        let spelling = spelling(name);
        if spelling.is_empty() { None } else { *self.by_spelling.get(&spelling)? }
    }
}

/// A name without case and separators.
fn spelling(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// How a place is left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PlaceStep<'a> {
    /// To a property with a name.
    Property(&'a str),
    /// To any other property.
    OtherProperty,
    /// To an item that has a schema of its own.
    Item(usize),
    /// To any other item.
    OtherItem,
    /// To the same place, knowing that an array is there.
    IsArray,
    /// To the same place, knowing that an object is there.
    IsObject,
}

/// Alternatives in alternatives are followed this deep; further in, nothing is taken for certain.
const NESTED_ALTERNATIVES_MAX: usize = 8;

impl<'a> SchemaPlaces<'a> {
    pub(super) fn new(schema: &'a Schema, limits: &ArgLimits) -> SchemaPlaces<'a> {
        SchemaPlaces {
            schema: schema.source(),
            references: References::of(schema.source()),
            known: Vec::new(),
            by_schemas: BTreeMap::new(),
            steps: BTreeMap::new(),
            work_left: limits.validation_work_max,
        }
    }

    /// The whole value.
    pub(super) fn root(&mut self) -> PlaceId {
        self.place(vec![self.schema])
    }

    /// Counts work.
    pub(super) fn spend(&mut self, work: usize) {
        self.work_left = self.work_left.saturating_sub(work as u64);
    }

    /// Whether there was too much of it; what was answered since then means nothing.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work_left == 0
    }

    /// Whether anything at all is said of the place.
    pub(super) fn is_bare(&self, place: PlaceId) -> bool {
        self.known[place.0].schemas.is_empty()
    }

    /// The types that may fit.
    pub(super) fn types(&mut self, place: PlaceId) -> Types {
        self.types_within(place, 0)
    }

    fn types_within(&mut self, place: PlaceId, nesting: usize) -> Types {
        if let Some(types) = self.known[place.0].types {
            return types;
        }
        if nesting > NESTED_ALTERNATIVES_MAX || self.is_exhausted() {
            return Types::ANY;
        }
        let mut types = if self.known[place.0].is_closed { Types::NONE } else { Types::ANY };
        for schema in self.known[place.0].schemas.clone() {
            let Value::Object(map) = schema else { continue };
            self.spend(1);
            types = types.and(Types::written(map));
            for alternatives in alternatives(map) {
                let mut either = Types::NONE;
                for alternative in alternatives {
                    let alternative = self.place(vec![alternative]);
                    either = either.or(self.types_within(alternative, nesting + 1));
                }
                types = types.and(either);
            }
        }
        self.known[place.0].types = Some(types);
        types
    }

    /// The place, knowing that what is there is an array.
    pub(super) fn as_array(&mut self, place: PlaceId) -> PlaceId {
        self.step(place, PlaceStep::IsArray, |places| places.narrowed(place, Types::ARRAY))
    }

    /// The place, knowing that what is there is an object.
    pub(super) fn as_object(&mut self, place: PlaceId) -> PlaceId {
        self.step(place, PlaceStep::IsObject, |places| places.narrowed(place, Types::OBJECT))
    }

    /// Adds the alternatives that are the only ones left.
    fn narrowed(&mut self, place: PlaceId, given: Types) -> PlaceId {
        let mut narrowed = place;
        for _ in 0..NESTED_ALTERNATIVES_MAX {
            let mut schemas = self.known[narrowed.0].schemas.clone();
            for schema in schemas.clone() {
                let Value::Object(map) = schema else { continue };
                for alternatives in alternatives(map) {
                    let mut left = Vec::new();
                    for alternative in alternatives {
                        let place = self.place(vec![alternative]);
                        if self.types(place).overlaps(given) {
                            left.push(alternative);
                        }
                    }
                    if let [only] = left[..] {
                        schemas.push(only);
                    }
                }
            }
            let before = std::mem::replace(&mut narrowed, self.place(schemas));
            if before == narrowed {
                break;
            }
        }
        narrowed
    }

    /// The rules for the properties of an object.
    pub(super) fn properties(&mut self, place: PlaceId) -> Rc<Properties<'a>> {
        if let Some(properties) = &self.known[place.0].properties {
            return Rc::clone(properties);
        }
        let properties = Rc::new(self.read_properties(place));
        self.spend(properties.named.len());
        self.known[place.0].properties = Some(Rc::clone(&properties));
        properties
    }

    fn read_properties(&mut self, place: PlaceId) -> Properties<'a> {
        let mut properties = Properties::default();
        let schemas = &self.known[place.0].schemas;
        let maps = || schemas.iter().filter_map(|schema| schema.as_object());
        for map in maps() {
            for (name, schema) in named(map) {
                *properties.named.entry(name).or_insert(true) &= *schema != Value::Bool(false);
            }
            let required = map.get("required").and_then(Value::as_array);
            properties.required.extend(required.into_iter().flatten().filter_map(Value::as_str));
            properties.has_patterns |= map.contains_key("patternProperties");
            let no_others = map.get("additionalProperties") == Some(&Value::Bool(false));
            properties.no_others |= no_others && !map.contains_key("patternProperties");
        }
        let is_evaluated_elsewhere =
            |map: &Map<String, Value>| EVALUATING.iter().any(|k| map.contains_key(*k));
        if maps().any(|map| map.get("unevaluatedProperties") == Some(&Value::Bool(false))) {
            properties.no_others |= !maps().any(is_evaluated_elsewhere);
        }
        for (name, _) in properties.named.iter().filter(|(_, may_be_there)| **may_be_there) {
            properties
                .by_spelling
                .entry(spelling(name))
                .and_modify(|only| *only = None)
                .or_insert(Some(*name));
        }
        properties
    }

    /// A property of an object.
    pub(super) fn property(&mut self, place: PlaceId, properties: &Properties<'a>, name: &str) -> PlaceId {
        let step = match properties.named.get_key_value(name) {
            Some((name, _)) => PlaceStep::Property(name),
            None => PlaceStep::OtherProperty,
        };
        self.step(place, step, |places| {
            let schemas = &places.known[place.0].schemas;
            let found = schemas.iter().filter_map(|schema| {
                let map = schema.as_object()?;
                match map.get("properties").and_then(|named| named.get(name)) {
                    Some(schema) => Some(schema),
                    None if map.contains_key("patternProperties") => None,
                    None => map.get("additionalProperties"),
                }
            });
            let found = found.collect();
            places.place(found)
        })
    }

    /// Whether items there have schemas of their own.
    pub(super) fn has_own_items(&mut self, place: PlaceId) -> bool {
        let place = self.as_array(place);
        self.known[place.0].schemas.iter().any(|schema| !prefix(schema).is_empty())
    }

    /// An item of an array.
    pub(super) fn item(&mut self, place: PlaceId, index: usize) -> PlaceId {
        let schemas = &self.known[place.0].schemas;
        let own = schemas.iter().map(|schema| prefix(schema).len()).max().unwrap_or(0);
        let step = if index < own { PlaceStep::Item(index) } else { PlaceStep::OtherItem };
        self.step(place, step, |places| {
            let schemas = &places.known[place.0].schemas;
            let found = schemas.iter().filter_map(|schema| match prefix(schema).get(index) {
                Some(own) => Some(own),
                None => schema.get("items"),
            });
            let found = found.collect();
            places.place(found)
        })
    }

    fn step(
        &mut self,
        place: PlaceId,
        step: PlaceStep<'a>,
        find: impl FnOnce(&mut SchemaPlaces<'a>) -> PlaceId,
    ) -> PlaceId {
        self.spend(1);
        if let Some(known) = self.steps.get(&(place, step)) {
            return *known;
        }
        let found = find(self);
        self.steps.insert((place, step), found);
        found
    }

    /// The place of a value that must fit all of these schemas, and those they refer to.
    fn place(&mut self, mut pending: Vec<&'a Value>) -> PlaceId {
        let mut seen = BTreeSet::new();
        let mut found = SchemaPlace { schemas: Vec::new(), is_closed: false, types: None, properties: None };
        while let Some(schema) = pending.pop() {
            self.spend(1);
            match schema {
                Value::Bool(truth) => found.is_closed |= !truth,
                Value::Object(map) if !map.is_empty() && seen.insert(address(schema)) => {
                    found.schemas.push(schema);
                    pending.extend(self.references.target(schema));
                    pending.extend(map.get("allOf").and_then(Value::as_array).into_iter().flatten());
                }
                // Known already, or not what a schema is.
                Value::Object(_) | Value::Array(_) | Value::String(_) | Value::Number(_) | Value::Null => {}
            }
        }
        let mut key: Vec<usize> = seen.into_iter().collect();
        if found.is_closed {
            key.push(0);
        }
        let known = &mut self.known;
        *self.by_schemas.entry(key).or_insert_with(|| {
            known.push(found);
            PlaceId(known.len() - 1)
        })
    }
}

/// Beside one of these, `unevaluatedProperties` may leave more than `properties` names.
const EVALUATING: [&str; 9] = [
    "patternProperties",
    "additionalProperties",
    "anyOf",
    "oneOf",
    "if",
    "not",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
];

fn alternatives(map: &Map<String, Value>) -> impl Iterator<Item = &Vec<Value>> {
    ["anyOf", "oneOf"].into_iter().filter_map(|name| map.get(name)?.as_array())
}

fn named(map: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let named = map.get("properties").and_then(Value::as_object);
    named.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema))
}

fn prefix(schema: &Value) -> &[Value] {
    schema.get("prefixItems").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}
