//! A schema as a graph of its subschemas, with every reference resolved.

use super::Refusal;
use crate::json::push_step;
use jsonschema::{Uri, uri};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The subschemas that matter; the first is the root.
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<SchemaNode<'a>>,
    /// Where each `$ref` leads, by the address of the schema that has it.
    pub(super) references: BTreeMap<usize, &'a Value>,
    trails: Trails<'a>,
}

/// A subschema and where it leads.
pub(super) struct SchemaNode<'a> {
    place: GraphPlace<'a>,
    /// Applied to the same value.
    pub(super) in_place: Vec<usize>,
    /// Applied to items, possibly several to the same one.
    pub(super) items: Vec<usize>,
    /// Applied to items, each to another one.
    pub(super) one_item: Vec<usize>,
    /// Applied to properties, possibly several to the same one.
    pub(super) properties: Vec<usize>,
    /// Applied to properties, each to another one.
    pub(super) one_property: Vec<usize>,
    /// Entries of its lists, each of which is looked at: `enum`, `required`.
    pub(super) entries: u64,
    /// Of `anyOf` and `oneOf`.
    pub(super) alternatives: u64,
}

impl SchemaNode<'_> {
    /// Everything it leads to.
    pub(super) fn edges(&self) -> impl Iterator<Item = usize> {
        let all = [&self.in_place, &self.items, &self.one_item, &self.properties, &self.one_property];
        all.into_iter().flatten().copied()
    }
}

/// How far a walk has come with a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkMark {
    New,
    Walking,
    Done,
}

/// The URI of a schema without `$id`, as the library has it.
const NO_ID: &str = "json-schema:///";
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

impl<'a> Graph<'a> {
    /// Reads the schema, or says which reference leads outside or nowhere.
    pub(super) fn read(schema: &'a Value) -> Result<Graph<'a>, Refusal> {
        let mut reader = GraphReader::default();
        let outcome = reader.read(schema);
        match outcome {
            Ok(()) => Ok(Graph { nodes: reader.nodes, references: reader.references, trails: reader.trails }),
            Err(Nowhere { trail, keyword, what }) => {
                Err((format!("{}/{keyword}", reader.trails.pointer(trail)), what))
            }
        }
    }

    /// Where a node stands, as a JSON pointer.
    pub(super) fn pointer(&self, node: usize) -> String {
        self.trails.pointer(self.nodes[node].place.trail)
    }
}

/// Where a keyword's subschemas apply.
#[derive(Clone, Copy)]
enum KeywordReach {
    InPlace,
    Items,
    OneItem,
    Properties,
    OneProperty,
    /// Nowhere by themselves: definitions.
    Nowhere,
}

/// How a keyword holds its subschemas.
#[derive(Clone, Copy)]
enum SubschemaShape {
    One,
    List,
    Map,
}

/// The keywords that hold subschemas. What else a schema has holds none, unless a reference points there.
fn keyword(name: &str) -> Option<(SubschemaShape, KeywordReach)> {
    Some(match name {
        "allOf" | "anyOf" | "oneOf" => (SubschemaShape::List, KeywordReach::InPlace),
        "not" | "if" | "then" | "else" => (SubschemaShape::One, KeywordReach::InPlace),
        "dependentSchemas" | "dependencies" => (SubschemaShape::Map, KeywordReach::InPlace),
        "items" | "additionalItems" | "contains" | "unevaluatedItems" => {
            (SubschemaShape::One, KeywordReach::Items)
        }
        "prefixItems" => (SubschemaShape::List, KeywordReach::OneItem),
        "properties" => (SubschemaShape::Map, KeywordReach::OneProperty),
        "patternProperties" => (SubschemaShape::Map, KeywordReach::Properties),
        "additionalProperties" | "unevaluatedProperties" | "propertyNames" => {
            (SubschemaShape::One, KeywordReach::Properties)
        }
        "contentSchema" => (SubschemaShape::One, KeywordReach::Nowhere),
        "$defs" | "definitions" => (SubschemaShape::Map, KeywordReach::Nowhere),
        _ => return None,
    })
}

/// A value in the schema, where it stands, and the resource it belongs to.
#[derive(Clone, Copy)]
struct GraphPlace<'a> {
    value: &'a Value,
    trail: usize,
    resource: usize,
}

/// Where values stand, each as a step from where its parent stands: written out as pointers, the places of a schema
/// that is deep and wide would take its square in memory.
#[derive(Default)]
struct Trails<'a>(Vec<(usize, GraphStep<'a>)>);

enum GraphStep<'a> {
    Root,
    Key(&'a str),
    Index(usize),
    /// Steps that are a pointer already.
    Pointer(String),
}

impl<'a> Trails<'a> {
    fn step(&mut self, from: usize, step: GraphStep<'a>) -> usize {
        self.0.push((from, step));
        self.0.len() - 1
    }

    fn pointer(&self, trail: usize) -> String {
        let mut steps = Vec::new();
        let mut at = trail;
        while let Some((from, step)) = self.0.get(at).filter(|(_, step)| !matches!(step, GraphStep::Root)) {
            steps.push(step);
            at = *from;
        }
        let mut pointer = String::new();
        for step in steps.into_iter().rev() {
            match step {
                GraphStep::Root => {}
                GraphStep::Key(key) => push_step(&mut pointer, key),
                GraphStep::Index(index) => push_step(&mut pointer, &index.to_string()),
                GraphStep::Pointer(steps) => pointer.push_str(steps),
            }
        }
        pointer
    }
}

/// A part of the schema with an `$id` of its own.
struct Resource<'a> {
    uri: Uri<String>,
    place: GraphPlace<'a>,
}

/// A keyword that cannot be followed.
struct Nowhere {
    trail: usize,
    keyword: &'static str,
    what: String,
}

#[derive(Default)]
struct GraphReader<'a> {
    nodes: Vec<SchemaNode<'a>>,
    trails: Trails<'a>,
    /// By the address of the value: the same subschema is one node however it is reached.
    known: BTreeMap<usize, usize>,
    resources: Vec<Resource<'a>>,
    /// Resources by their URI.
    by_uri: BTreeMap<String, usize>,
    /// Which resource a subschema with an `$id` begins.
    begins: BTreeMap<usize, usize>,
    /// By resource and anchor.
    anchors: BTreeMap<(usize, &'a str), GraphPlace<'a>>,
    dynamic: BTreeMap<&'a str, Vec<GraphPlace<'a>>>,
    references: BTreeMap<usize, &'a Value>,
}

impl<'a> GraphReader<'a> {
    fn read(&mut self, schema: &'a Value) -> Result<(), Nowhere> {
        let root = GraphPlace { value: schema, trail: self.trails.step(0, GraphStep::Root), resource: 0 };
        self.find_names(root)?;
        self.node(root);
        let mut next = 0;
        while next < self.nodes.len() {
            self.follow(next)?;
            next += 1;
        }
        Ok(())
    }

    /// Walks the subschemas as they are written and notes every `$id` and anchor.
    fn find_names(&mut self, root: GraphPlace<'a>) -> Result<(), Nowhere> {
        let fault = |what| Nowhere { trail: root.trail, keyword: "$id", what };
        let uri = uri::from_str(NO_ID).map_err(|error| fault(error.to_string()))?;
        self.add_resource(uri, root);
        let mut pending = vec![root];
        while let Some(mut place) = pending.pop() {
            let Value::Object(map) = place.value else { continue };
            check_dialect(map, place.trail)?;
            if let Some(Value::String(id)) = map.get("$id") {
                let uri = self.resolve(id, place.resource);
                let uri = uri.map_err(|what| Nowhere { trail: place.trail, keyword: "$id", what })?;
                place.resource = self.resources.len();
                self.begins.insert(address(place.value), place.resource);
                self.add_resource(uri, place);
            }
            for (name, dynamic) in [("$anchor", false), ("$dynamicAnchor", true)] {
                let Some(Value::String(anchor)) = map.get(name) else { continue };
                self.anchors.insert((place.resource, anchor), place);
                if dynamic {
                    self.dynamic.entry(anchor).or_default().push(place);
                }
            }
            pending.extend(self.subschemas(place).into_iter().map(|(child, _)| child));
        }
        Ok(())
    }

    fn add_resource(&mut self, uri: Uri<String>, place: GraphPlace<'a>) {
        self.by_uri.insert(uri.as_str().to_string(), self.resources.len());
        self.resources.push(Resource { uri, place });
    }

    fn resolve(&self, reference: &str, resource: usize) -> Result<Uri<String>, String> {
        let base = self.resources[resource].uri.borrow();
        let without_fragment = reference.split('#').next().unwrap_or_default();
        uri::resolve_against(&base, without_fragment)
            .map_err(|_| format!("{} is not a URI reference; correct it", quoted(reference)))
    }

    /// The node of this value, made if it is new.
    fn node(&mut self, mut place: GraphPlace<'a>) -> usize {
        if let Some(&begun) = self.begins.get(&address(place.value)) {
            place.resource = begun;
        }
        let nodes = &mut self.nodes;
        *self.known.entry(address(place.value)).or_insert_with(|| {
            nodes.push(SchemaNode::new(place));
            nodes.len() - 1
        })
    }

    /// Adds the edges of a node, and the nodes they lead to.
    fn follow(&mut self, node: usize) -> Result<(), Nowhere> {
        let place = self.nodes[node].place;
        let Value::Object(map) = place.value else { return Ok(()) };
        for (child, reach) in self.subschemas(place) {
            let to = self.node(child);
            let this = &mut self.nodes[node];
            match reach {
                KeywordReach::InPlace => this.in_place.push(to),
                KeywordReach::Items => this.items.push(to),
                KeywordReach::OneItem => this.one_item.push(to),
                KeywordReach::Properties => this.properties.push(to),
                KeywordReach::OneProperty => this.one_property.push(to),
                KeywordReach::Nowhere => {}
            }
        }
        for keyword in ["$ref", "$dynamicRef"] {
            let Some(reference) = map.get(keyword) else { continue };
            let fault = |what| Nowhere { trail: place.trail, keyword, what };
            let Value::String(reference) = reference else {
                return Err(fault("a reference is a string such as \"#/$defs/item\"".to_string()));
            };
            let mut targets = vec![self.target(reference, place.resource).map_err(fault)?];
            if keyword == "$dynamicRef" {
                let anchor = reference.split_once('#').map_or("", |(_, fragment)| fragment);
                targets.extend(self.dynamic.get(anchor).into_iter().flatten());
            } else {
                self.references.extend(targets.iter().map(|target| (address(place.value), target.value)));
            }
            for target in targets {
                let to = self.node(target);
                self.nodes[node].in_place.push(to);
            }
        }
        let length = |name| map.get(name).and_then(Value::as_array).map_or(0, |list| list.len() as u64);
        self.nodes[node].entries = length("enum") + length("required");
        self.nodes[node].alternatives = length("anyOf") + length("oneOf");
        Ok(())
    }

    /// The value a reference leads to.
    fn target(&mut self, reference: &str, resource: usize) -> Result<GraphPlace<'a>, String> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let number = if document.is_empty() {
            resource
        } else {
            let uri = self.resolve(document, resource)?;
            *self.by_uri.get(uri.as_str()).ok_or_else(|| {
                format!(
                    "{} refers outside the schema, and nothing is fetched; copy it to $defs",
                    quoted(reference)
                )
            })?
        };
        let nowhere = || format!("{} refers to nothing in the schema; correct it", quoted(reference));
        let start = GraphPlace { resource: number, ..self.resources[number].place };
        if fragment.is_empty() {
            return Ok(start);
        }
        if !fragment.starts_with('/') {
            return self.anchors.get(&(number, fragment)).copied().ok_or_else(nowhere);
        }
        let steps = percent_decoded(fragment).ok_or_else(nowhere)?;
        let value = start.value.pointer(&steps).ok_or_else(nowhere)?;
        Ok(GraphPlace {
            value,
            trail: self.trails.step(start.trail, GraphStep::Pointer(steps)),
            resource: number,
        })
    }

    /// The subschemas written in a schema, by sorted keyword: the order of a `Map` depends on a feature that others may
    /// switch on.
    fn subschemas(&mut self, place: GraphPlace<'a>) -> Vec<(GraphPlace<'a>, KeywordReach)> {
        let Value::Object(map) = place.value else { return Vec::new() };
        let mut found = Vec::new();
        for (name, held) in sorted(map) {
            let Some((shape, reach)) = keyword(name) else { continue };
            let at = self.trails.step(place.trail, GraphStep::Key(name));
            match (shape, held) {
                (SubschemaShape::One, value) => found.push((GraphPlace { value, trail: at, ..place }, reach)),
                (SubschemaShape::List, Value::Array(list)) => {
                    for (index, value) in list.iter().enumerate() {
                        let trail = self.trails.step(at, GraphStep::Index(index));
                        found.push((GraphPlace { value, trail, ..place }, reach));
                    }
                }
                (SubschemaShape::Map, Value::Object(map)) => {
                    for (key, value) in sorted(map) {
                        let trail = self.trails.step(at, GraphStep::Key(key));
                        found.push((GraphPlace { value, trail, ..place }, reach));
                    }
                }
                // Not the shape it must have: validation against the meta-schema says so.
                (SubschemaShape::List | SubschemaShape::Map, _) => {}
            }
        }
        found
    }
}

impl<'a> SchemaNode<'a> {
    fn new(place: GraphPlace<'a>) -> SchemaNode<'a> {
        SchemaNode {
            place,
            in_place: Vec::new(),
            items: Vec::new(),
            one_item: Vec::new(),
            properties: Vec::new(),
            one_property: Vec::new(),
            entries: 0,
            alternatives: 0,
        }
    }
}

fn check_dialect(map: &Map<String, Value>, trail: usize) -> Result<(), Nowhere> {
    match map.get("$schema") {
        None => Ok(()),
        Some(Value::String(dialect)) if dialect.trim_end_matches('#') == DIALECT => Ok(()),
        Some(_) => {
            let what =
                format!("only JSON Schema 2020-12 is understood; convert the schema and write {DIALECT:?}");
            Err(Nowhere { trail, keyword: "$schema", what })
        }
    }
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

pub(super) fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// A reference as a message shows it.
fn quoted(reference: &str) -> String {
    let shown: String = reference.chars().take(100).collect();
    format!("{shown:?}")
}

/// A fragment may have its characters written as `%41`.
fn percent_decoded(fragment: &str) -> Option<String> {
    if !fragment.contains('%') {
        return Some(fragment.to_string());
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}
