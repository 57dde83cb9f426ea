//! The walk through a value and its schema that changes what is certainly wrong and can only mean one thing.
//!
//! It goes from the outside in, because a name or an array must be right before what is in it can be. It does not
//! recurse: what is still to be visited is a stack.

use super::places::{PlaceId, Properties, SchemaPlaces};
use super::types::Types;
use super::{ArgumentContract, Repair, RepairKind};
use crate::json::{self, exact_number, push_step};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Repairs `value` in place; none once it is clear that it will not fit, or takes too much. Whether it fits is then for the
/// caller to find out.
pub(super) fn repair(
    value: &mut Value,
    wanted: &ArgumentContract<'_>,
    repairs: &mut Vec<Repair>,
) -> Option<()> {
    let schema = wanted.schema?;
    let size = json::measure(value, wanted.limits).ok()?;
    if size.nodes.saturating_mul(schema.nodes()) > wanted.limits.validation_work_max {
        return None;
    }
    let repairs_max = usize::try_from(wanted.limits.repairs_max).unwrap_or(usize::MAX);
    let mut places = SchemaPlaces::new(schema, wanted.limits);
    let root = Visit { value, place: places.root(), trail: 0, is_item: false };
    let mut walk = RepairWalk {
        places,
        trails: vec![(0, TrailStep::Root)],
        repairs,
        bytes_left: PLACES_BYTES_MAX,
        is_hopeless: false,
    };
    let mut pending = vec![root];
    while let Some(visit) = pending.pop() {
        let first = pending.len();
        walk.visit(visit, &mut pending);
        pending[first..].reverse();
        if walk.is_hopeless || walk.places.is_exhausted() || walk.repairs.len() > repairs_max {
            return None;
        }
    }
    Some(())
}

/// A value to look at.
struct Visit<'v> {
    value: &'v mut Value,
    place: PlaceId,
    trail: usize,
    /// Whether it lies in an array.
    is_item: bool,
}

struct RepairWalk<'a, 'r> {
    places: SchemaPlaces<'a>,
    /// Where visited values lie, each as a step from another: only places of repairs are written out as pointers.
    trails: Vec<(usize, TrailStep)>,
    repairs: &'r mut Vec<Repair>,
    /// How much more the places of repairs may take: many of them under a long name would be larger than the arguments.
    bytes_left: usize,
    /// Whether something was found that no repair helps, or too much was: there is no use in going on.
    is_hopeless: bool,
}

/// The maximum size of the places of all repairs.
const PLACES_BYTES_MAX: usize = 64 << 10;

enum TrailStep {
    Root,
    Property(String),
    Item(usize),
}

impl<'a> RepairWalk<'a, '_> {
    fn visit<'v>(&mut self, visit: Visit<'v>, pending: &mut Vec<Visit<'v>>) {
        let Visit { value, place, trail, is_item } = visit;
        let types = self.places.types(place);
        if !types.overlaps(Types::of(value)) {
            match mend(value, types, !is_item && !self.places.has_own_items(place)) {
                Some(kind) => self.note(kind, trail, None),
                None => return self.is_hopeless = true,
            }
        }
        match value {
            Value::Array(items) => {
                let place = self.places.as_array(place);
                for (index, value) in items.iter_mut().enumerate() {
                    let place = self.places.item(place, index);
                    if self.is_fine(value, place) {
                        continue;
                    }
                    let trail = self.step(trail, TrailStep::Item(index));
                    pending.push(Visit { value, place, trail, is_item: true });
                }
            }
            Value::Object(map) => {
                let place = self.places.as_object(place);
                let properties = self.places.properties(place);
                self.rename(map, &properties, trail);
                self.drop_nulls(map, place, &properties, trail);
                for (name, value) in sorted(map) {
                    let place = self.places.property(place, &properties, name);
                    if self.is_fine(value, place) {
                        continue;
                    }
                    let trail = self.step(trail, TrailStep::Property(name.clone()));
                    pending.push(Visit { value, place, trail, is_item: false });
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Whether there is nothing to look for: most values are right, and take no step.
    fn is_fine(&mut self, value: &Value, place: PlaceId) -> bool {
        let has_inside = value.is_array() || value.is_object();
        self.places.is_bare(place) || (!has_inside && self.places.types(place).overlaps(Types::of(value)))
    }

    /// Gives properties the name that they must have meant: one that is missing, and that no other name stands for.
    fn rename(&mut self, map: &mut Map<String, Value>, properties: &Properties<'a>, trail: usize) {
        let misses = |name: &str| properties.required.contains(name) && !map.contains_key(name);
        if !is_wrong(map, properties) {
            return;
        }
        // A name that may be there is wrong only if it stands where a required one is missing.
        let may_be_meant =
            |target: &str| properties.no_others || (!properties.has_patterns && misses(target));
        self.places.spend(map.len());
        let mut meant: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for name in map.keys().filter(|name| !properties.is_named(name)) {
            if let Some(target) = properties.spelt_like(name).filter(|target| may_be_meant(target)) {
                meant.entry(target).or_default().push(name.clone());
            }
        }
        for (target, names) in meant {
            if let [name] = &names[..]
                && !map.contains_key(target)
                && let Some(value) = map.remove(name)
            {
                map.insert(target.to_string(), value);
                let at = self.step(trail, TrailStep::Property(target.to_string()));
                self.note(RepairKind::Name, at, Some(name.clone()));
            }
        }
        self.is_hopeless |= is_wrong(map, properties);
    }

    /// Drops what is null, has a name, need not be there, and must not be null.
    fn drop_nulls(
        &mut self,
        map: &mut Map<String, Value>,
        place: PlaceId,
        properties: &Properties<'a>,
        trail: usize,
    ) {
        let is_optional = |name: &str| properties.is_named(name) && !properties.required.contains(name);
        let nulls = map.iter().filter(|(name, value)| value.is_null() && is_optional(name));
        let mut nulls: Vec<String> = nulls.map(|(name, _)| name.clone()).collect();
        nulls.sort_unstable();
        for name in nulls {
            let below = self.places.property(place, properties, &name);
            let types = self.places.types(below);
            // What takes nothing at all must not be there, null or not: that is another mistake.
            if !types.overlaps(Types::NULL) && types != Types::NONE {
                map.remove(&name);
                let at = self.step(trail, TrailStep::Property(name));
                self.note(RepairKind::Null, at, None);
            }
        }
    }

    fn step(&mut self, from: usize, step: TrailStep) -> usize {
        self.trails.push((from, step));
        self.trails.len() - 1
    }

    fn note(&mut self, kind: RepairKind, trail: usize, was: Option<String>) {
        let mut steps = Vec::new();
        let mut at = trail;
        while let Some((from, step)) =
            self.trails.get(at).filter(|(_, step)| !matches!(step, TrailStep::Root))
        {
            steps.push(step);
            at = *from;
        }
        let mut pointer = String::new();
        for step in steps.into_iter().rev() {
            match step {
                TrailStep::Root => {}
                TrailStep::Property(name) => push_step(&mut pointer, name),
                TrailStep::Item(index) => push_step(&mut pointer, &index.to_string()),
            }
        }
        let bytes = pointer.len() + was.as_ref().map_or(0, String::len);
        self.bytes_left = self.bytes_left.checked_sub(bytes).unwrap_or_else(|| {
            self.is_hopeless = true;
            0
        });
        if !self.is_hopeless {
            self.repairs.push(Repair { kind, at: pointer, was });
        }
    }
}

/// Whether a property is missing, or one is there that must not be.
fn is_wrong(map: &Map<String, Value>, properties: &Properties<'_>) -> bool {
    properties.required.iter().any(|name| !map.contains_key(*name))
        || (properties.no_others && map.keys().any(|name| !properties.is_named(name)))
}

/// Makes a value of the wrong type one of the right type, if it can only mean that.
///
/// Only some may be put into an array: among items, [1, 2] for an array of arrays could be [[1], [2]] as well as
/// [[1, 2]]; and where each item is something else, one value could be any of them.
fn mend(value: &mut Value, types: Types, may_be_wrapped: bool) -> Option<RepairKind> {
    let wants_array = types.without(Types::NULL) == Types::ARRAY;
    if let Value::String(text) = value
        && let Some((scalar, kind)) = scalar(text, types)
    {
        // Either reading would do.
        if types.overlaps(Types::ARRAY) {
            return None;
        }
        *value = scalar;
        return Some(kind);
    }
    if !wants_array || !may_be_wrapped || !is_single(value) {
        return None;
    }
    *value = Value::Array(vec![value.take()]);
    Some(RepairKind::Array)
}

/// The number or boolean that the text is.
fn scalar(text: &str, types: Types) -> Option<(Value, RepairKind)> {
    let truth = match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    if let Some(truth) = truth.filter(|_| types.overlaps(Types::BOOLEAN)) {
        return Some((Value::Bool(truth), RepairKind::Boolean));
    }
    let is_whole = || text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if types.overlaps(Types::FRACTION) || (types.overlaps(Types::INTEGER) && is_whole()) {
        return exact_number(text).map(|number| (Value::Number(number), RepairKind::Number));
    }
    None
}

/// Whether the value is one thing. Nothing may mean an empty array, and a text with separators several things.
fn is_single(value: &Value) -> bool {
    match value {
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => {
            let text = text.trim();
            !text.is_empty() && !text.starts_with(['[', '{']) && !text.contains([',', ';', '\n'])
        }
        Value::Object(map) => !map.is_empty(),
        Value::Null | Value::Array(_) => false,
    }
}

/// The order of a `Map` depends on a feature that others may switch on.
fn sorted(map: &mut Map<String, Value>) -> Vec<(&String, &mut Value)> {
    let mut entries: Vec<_> = map.iter_mut().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    entries
}
