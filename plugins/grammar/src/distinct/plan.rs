//! Places of a document at which arrays have different items.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::endings::Ending;
use super::texts::{DISTINCT, NAMES};

/// A part of a schema: what it applies beside itself, to members and to items.
#[derive(Default)]
struct Node {
    /// Items differ.
    distinct: Option<Rule>,
    /// Names of members differ.
    names: bool,
    beside: Vec<usize>,
    members: HashMap<String, usize>,
    patterns: Vec<usize>,
    others: Vec<usize>,
    items: Vec<usize>,
}

/// Items that differ.
#[derive(Clone, Default)]
pub(super) struct Rule {
    /// Greatest length of a text.
    pub(super) longest: Option<usize>,
    /// The only texts that there are.
    pub(super) listed: Option<Arc<Vec<Arc<[u8]>>>>,
    /// How its items end, if they may be other values than texts.
    pub(super) ending: Option<Arc<Ending>>,
}

impl Rule {
    /// Both rules: any of two may be that of an array.
    fn with(self, other: Self) -> Self {
        if self.ending.is_some() || other.ending.is_some() {
            let text = || Ending {
                text: true,
                ..Ending::default()
            };
            let of = |rule: Self| rule.ending.map_or_else(text, |ending| (*ending).clone());
            let (one, other) = (of(self), of(other));
            let ending = one.clone().with(other).unwrap_or(one);
            return Self {
                ending: Some(ending.into()),
                ..Self::default()
            };
        }
        Self {
            longest: match (self.longest, other.longest) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            listed: self.listed.or(other.listed),
            ending: None,
        }
    }
}

/// Schemas that apply to a value, by number.
pub(super) type Places = Vec<usize>;

/// A schema as a way from a place to those of its members and items.
pub(crate) struct Plan {
    nodes: Vec<Node>,
    defined: HashMap<String, usize>,
    has_ends: bool,
}

impl Plan {
    /// The plan of a rewritten schema, whose references lead to its `$defs`. None if no items need differ.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        let mut plan = Self {
            nodes: Vec::new(),
            defined: HashMap::new(),
            has_ends: false,
        };
        plan.nodes.push(Node::default());
        let definitions = schema.get("$defs").and_then(Value::as_object);
        for name in definitions.into_iter().flatten().map(|(name, _)| name) {
            plan.defined
                .insert(format!("#/$defs/{name}"), plan.nodes.len());
            plan.nodes.push(Node::default());
        }
        plan.fill(0, schema);
        for (name, definition) in definitions.into_iter().flatten() {
            if let Some(at) = plan.defined.get(&format!("#/$defs/{name}")).copied() {
                plan.fill(at, definition);
            }
        }
        let ends = |node: &Node| (node.distinct.as_ref()).is_some_and(|rule| rule.ending.is_some());
        plan.has_ends = plan.nodes.iter().any(ends);
        let any = |node: &Node| node.distinct.is_some() || node.names;
        let any = plan.nodes.iter().any(any);
        any.then_some(plan)
    }

    fn add(&mut self, schema: &Value) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node::default());
        self.fill(at, schema);
        at
    }

    fn fill(&mut self, at: usize, schema: &Value) {
        let Value::Object(fields) = schema else {
            return;
        };
        let mut node = Node::default();
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("$ref", Value::String(to)) => node.beside.extend(self.defined.get(to)),
                ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                    node.beside.extend(parts.iter().map(|part| self.add(part)));
                }
                ("properties", Value::Object(named)) => {
                    let named = named
                        .iter()
                        .map(|(name, part)| (name.clone(), self.add(part)));
                    node.members = named.collect();
                }
                ("patternProperties", Value::Object(named)) => {
                    node.patterns
                        .extend(named.values().map(|part| self.add(part)));
                }
                ("additionalProperties", part) => node.others.push(self.add(part)),
                ("items" | "prefixItems", Value::Array(parts)) => {
                    node.items.extend(parts.iter().map(|part| self.add(part)));
                }
                ("items" | "additionalItems", part) => node.items.push(self.add(part)),
                (DISTINCT, Value::Bool(true)) => node.distinct = Some(rule(fields)),
                (DISTINCT, ending) => {
                    node.distinct = Some(Rule {
                        ending: Ending::read(ending).map(Arc::new),
                        ..Rule::default()
                    });
                }
                (NAMES, Value::Bool(true)) => node.names = true,
                _ => {}
            }
        }
        self.nodes[at] = node;
    }

    /// Places of the whole document.
    pub(super) fn root(&self) -> Places {
        self.with_beside(vec![0])
    }

    /// Places of a member.
    pub(super) fn member(&self, places: &Places, name: &str) -> Places {
        let mut found = Vec::new();
        for node in places.iter().map(|at| &self.nodes[*at]) {
            found.extend(&node.patterns);
            match node.members.get(name) {
                Some(member) => found.push(*member),
                None => found.extend(&node.others),
            }
        }
        self.with_beside(found)
    }

    /// Places of an item.
    pub(super) fn item(&self, places: &Places) -> Places {
        let items = places.iter().flat_map(|at| &self.nodes[*at].items);
        self.with_beside(items.copied().collect())
    }

    /// Whether the items of an array at these places differ.
    pub(super) fn distinct(&self, places: &Places) -> Option<Rule> {
        let all = places
            .iter()
            .filter_map(|at| self.nodes[*at].distinct.clone());
        all.reduce(Rule::with)
    }

    /// Whether items other than texts differ somewhere.
    pub(super) fn has_ends(&self) -> bool {
        self.has_ends
    }

    /// Whether the names of an object's members at these places differ.
    pub(super) fn names_differ(&self, places: &Places) -> bool {
        places.iter().any(|at| self.nodes[*at].names)
    }

    fn with_beside(&self, mut places: Places) -> Places {
        let mut at = 0;
        while let Some(place) = places.get(at) {
            for beside in &self.nodes[*place].beside {
                if !places.contains(beside) {
                    places.push(*beside);
                }
            }
            at += 1;
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

fn rule(fields: &Map<String, Value>) -> Rule {
    let item = |key: &str| fields.get("items")?.get(key);
    let listed = item("enum").and_then(Value::as_array);
    let listed = listed.map(|values| {
        let texts = values.iter().filter_map(Value::as_str);
        Arc::new(texts.map(|text| Arc::from(text.as_bytes())).collect())
    });
    Rule {
        longest: item("maxLength").and_then(|most| usize::try_from(most.as_u64()?).ok()),
        listed,
        ending: None,
    }
}
