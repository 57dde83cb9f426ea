//! Checks of a schema before the compiler sees it. Nothing here recurses.
//!
//! The schema is read as a graph: its nodes are the subschemas that can be reached from the root, its edges lead from a
//! subschema to those applied to the same value (*in place*: references, `allOf`, …) or to a value inside it (*below*:
//! `properties`, `items`, …). On the graph, unfolding is a sum, a reference that leads nowhere but to itself is a cycle
//! of edges in place, and both take a time that is linear in what was written.

mod graph;

use crate::code::ArgumentCode;
use crate::json::{Size, measure_within};
use crate::limits::ArgLimits;
use graph::{Graph, WalkMark};
use serde_json::Value;
use std::collections::BTreeMap;

/// Where every `$ref` of a schema leads, by the address of the schema that has it.
pub(crate) struct References<'a>(BTreeMap<usize, &'a Value>);

impl<'a> References<'a> {
    /// Reads the references of a schema that passed the guards.
    pub(crate) fn of(schema: &'a Value) -> References<'a> {
        References(Graph::read(schema).map(|graph| graph.references).unwrap_or_default())
    }

    /// The target of the `$ref` in `subschema`, if it has one.
    pub(crate) fn target(&self, subschema: &'a Value) -> Option<&'a Value> {
        self.0.get(&graph::address(subschema)).copied()
    }
}

/// A refusal: where, as a JSON pointer, and what.
pub(super) type Refusal = (String, String);

/// The cost of a schema, and its maximum.
#[derive(Debug)]
pub(super) struct SchemaCost {
    /// The unfolded size of the schema.
    pub(super) nodes: u64,
    /// Alternatives under `anyOf` and `oneOf`, unfolded.
    alternatives: u64,
    /// How often one value at depth *d* may be looked at; deeper ones as often as the last says.
    visits: Vec<u64>,
    /// Schema nodes times argument nodes, at most.
    pub(super) work_max: u64,
    /// Looks at values after which only the first problem is told.
    explained_values_max: u64,
}

/// How much may be said of a value that does not fit, so that saying it does not take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Explained {
    /// Everything that is wrong.
    Whole,
    /// The first problem.
    First,
    /// Only that something is wrong.
    Not,
}

impl SchemaCost {
    /// The library cannot be stopped while it collects problems. It looks at a value again for every way that leads to it,
    /// keeps a copy of the value for every alternative that it does not fit, and writes out where each problem is. So
    /// all are collected only where there cannot be many, and else the search ends at the first, if that is
    /// certain to end it: among alternatives the problems of each are collected all the same.
    pub(super) fn explained(&self, value: &Value, size: Size) -> Explained {
        const COPIED_BYTES_MAX: u64 = 16 << 20;
        let depth = usize::try_from(size.depth).unwrap_or(usize::MAX);
        let visits = self.visits.get(depth).or(self.visits.last()).copied().unwrap_or(u64::MAX);
        let looks = size.nodes.saturating_mul(visits);
        let is_copied_little =
            self.alternatives.saturating_mul(visits).saturating_mul(size.bytes) <= COPIED_BYTES_MAX;
        if looks <= self.explained_values_max
            && is_copied_little
            && pointer_bytes(value).saturating_mul(visits) <= COPIED_BYTES_MAX
        {
            Explained::Whole
        } else if self.alternatives == 0 && looks <= self.work_max {
            Explained::First
        } else {
            Explained::Not
        }
    }
}

/// The total size of the JSON pointers of all values in `value`: long keys over many values add up.
fn pointer_bytes(value: &Value) -> u64 {
    let mut sum = 0u64;
    let mut pending = vec![(value, 0u64)];
    while let Some((value, above)) = pending.pop() {
        sum = sum.saturating_add(above);
        match value {
            Value::Array(items) => pending.extend(items.iter().map(|item| (item, above + 7))),
            Value::Object(map) => {
                pending.extend(map.iter().map(|(key, item)| (item, above + 1 + key.len() as u64)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    sum
}

/// Checks everything that can be checked without compiling.
pub(super) fn check(schema: &Value, limits: &ArgLimits) -> Result<SchemaCost, Refusal> {
    let at_root = |what: String| (String::new(), what);
    let (bytes_max, depth_max) = (limits.schema_bytes_max, limits.schema_depth_max);
    let too_large = format!("it has more than {bytes_max} bytes; describe less, or shorter");
    measure_within(schema, bytes_max, depth_max).map_err(|problem| {
        at_root(if problem.code == ArgumentCode::TooDeep {
            format!("it is nested more than {depth_max} levels deep; flatten it with $defs")
        } else {
            too_large.clone()
        })
    })?;
    // Only now: writing it out recurses as deep as it is nested.
    if schema.to_string().len() as u64 > bytes_max {
        return Err(at_root(too_large));
    }
    if !schema.is_object() && !schema.is_boolean() {
        return Err(at_root(
            "a schema is an object or a boolean; write for example {\"type\": \"object\"}".to_string(),
        ));
    }
    let graph = Graph::read(schema)?;
    if let Some(node) = graph.endless() {
        let what = "this refers to itself without going into the value, so checking would never end; put the reference \
                    under properties or items";
        return Err((graph.pointer(node), what.to_string()));
    }
    let unfolded = unfold(&graph);
    if unfolded.nodes > limits.schema_nodes_max {
        let what = format!(
            "it unfolds to more than {} nodes once every reference is followed; use fewer or smaller references",
            limits.schema_nodes_max
        );
        return Err(at_root(what));
    }
    let visits = visits(&graph, limits.args_depth_max);
    Ok(SchemaCost {
        nodes: unfolded.nodes,
        alternatives: unfolded.alternatives,
        visits,
        work_max: limits.validation_work_max,
        explained_values_max: limits.explained_values_max,
    })
}

/// The unfolded size of a schema.
struct Unfolded {
    nodes: u64,
    alternatives: u64,
}

/// Adds up every node with all that it leads to; where it leads back to itself, it is cut.
fn unfold(graph: &Graph<'_>) -> Unfolded {
    let mut nodes = vec![0u64; graph.nodes.len()];
    let mut alternatives = vec![0u64; graph.nodes.len()];
    for (node, _) in graph.children_first(|node| node.edges().collect()) {
        let this = &graph.nodes[node];
        nodes[node] =
            this.edges().map(|child| nodes[child].max(1)).fold(1 + this.entries, u64::saturating_add);
        alternatives[node] =
            this.edges().map(|child| alternatives[child]).fold(this.alternatives, u64::saturating_add);
    }
    Unfolded { nodes: nodes[0], alternatives: alternatives[0] }
}

/// How often a value at each depth may be looked at when the schema is applied to the whole: the cost of a level is the
/// cost of the level above, applied to one item or one property of it.
fn visits(graph: &Graph<'_>, depth_max: u64) -> Vec<u64> {
    // Deeper values are refused before they come here; the table stays small whatever the limit is set to.
    const LEVELS_MAX: u64 = 128;
    let order: Vec<usize> =
        graph.children_first(|node| node.in_place.clone()).into_iter().map(|(node, _)| node).collect();
    let mut above: Vec<u64> = vec![0; graph.nodes.len()];
    let mut table = Vec::new();
    for level in 0..=depth_max.min(LEVELS_MAX) {
        let mut items = vec![0u64; graph.nodes.len()];
        let mut properties = vec![0u64; graph.nodes.len()];
        for &node in &order {
            let this = &graph.nodes[node];
            let own = u64::from(level == 0);
            let sum =
                |edges: &[usize], of: &[u64]| edges.iter().map(|&to| of[to]).fold(0, u64::saturating_add);
            let most = |edges: &[usize]| edges.iter().map(|&to| above[to]).max().unwrap_or(0);
            items[node] = own
                .saturating_add(sum(&this.in_place, &items))
                .saturating_add(sum(&this.items, &above))
                .saturating_add(most(&this.one_item));
            properties[node] = own
                .saturating_add(sum(&this.in_place, &properties))
                .saturating_add(sum(&this.properties, &above))
                .saturating_add(most(&this.one_property));
        }
        above = items.iter().zip(&properties).map(|(&item, &property)| item.max(property)).collect();
        let deepest = table.last().copied().unwrap_or(0);
        table.push(above[0].max(deepest));
        if above.iter().all(|&looks| looks == 0) {
            // Nothing is said of deeper values.
            return table;
        }
    }
    // The schema goes on for ever, and nobody counted further.
    table.push(u64::MAX);
    table
}

impl Graph<'_> {
    /// A node from which edges in place lead back to itself.
    fn endless(&self) -> Option<usize> {
        self.children_first(|node| node.in_place.clone())
            .into_iter()
            .find(|(_, cut)| *cut)
            .map(|(node, _)| node)
    }

    /// Every node after all that `edges` leads to from it, and whether one of them was still being walked: a cycle.
    fn children_first(&self, edges: impl Fn(&graph::SchemaNode<'_>) -> Vec<usize>) -> Vec<(usize, bool)> {
        let mut marks = vec![WalkMark::New; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for start in 0..self.nodes.len() {
            let mut path: Vec<(usize, std::vec::IntoIter<usize>, bool)> = Vec::new();
            let mut next = Some(start);
            loop {
                if let Some(node) = next.take() {
                    match marks[node] {
                        WalkMark::New => {
                            marks[node] = WalkMark::Walking;
                            path.push((node, edges(&self.nodes[node]).into_iter(), false));
                        }
                        WalkMark::Walking => {
                            if let Some((_, _, cut)) = path.last_mut() {
                                *cut = true;
                            }
                        }
                        WalkMark::Done => {}
                    }
                }
                let Some((node, children, cut)) = path.last_mut() else { break };
                match children.next() {
                    Some(child) => next = Some(child),
                    None => {
                        marks[*node] = WalkMark::Done;
                        order.push((*node, *cut));
                        path.pop();
                    }
                }
            }
        }
        order
    }
}
