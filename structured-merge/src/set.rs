//! Sets of field paths.

use crate::{
    path::{Path, PathElement},
    schema::{Schema, TypeRef},
};
use std::fmt::{self, Display, Formatter};

/// Set of field paths, such as the fields that one manager owns.
///
/// A path that is a member does not make its parents or children members. A set serializes to the
/// wire format `FieldsV1` of `metadata.managedFields`, with the key order of the API server.
///
/// ```
/// use structured_merge::{Path, Set};
///
/// let owned: Set = [Path::fields(["spec"]), Path::fields(["spec", "replicas"])]
///     .into_iter()
///     .collect();
/// let wire = serde_json::to_string(&owned).unwrap();
/// assert_eq!(wire, r#"{"f:spec":{".":{},"f:replicas":{}}}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted by element. Each node is a member or has children.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) element: PathElement,
    pub(crate) member: bool,
    pub(crate) children: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// Returns whether the set has no members.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.nodes
            .iter()
            .map(|node| usize::from(node.member) + node.children.len())
            .sum()
    }

    /// Adds a path. The empty path, which means the whole object, is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        if let [element, rest @ ..] = path {
            let node = self.node_mut(element);
            if rest.is_empty() {
                node.member = true;
            } else {
                node.children.insert(rest);
            }
        }
    }

    /// Returns whether the path is a member.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [element] => self.has(element),
            [element, rest @ ..] => self.child(element).is_some_and(|set| set.contains(rest)),
        }
    }

    /// Returns the members below `element`. Their paths start after `element`.
    pub fn child(&self, element: &PathElement) -> Option<&Set> {
        self.node(element)
            .map(|node| &node.children)
            .filter(|children| !children.is_empty())
    }

    /// Returns the paths that are members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        for pair in (Zip {
            left: &self.nodes,
            right: &other.nodes,
        }) {
            nodes.push(match pair {
                (Some(left), Some(right)) => Node {
                    element: left.element.clone(),
                    member: left.member || right.member,
                    children: left.children.union(&right.children),
                },
                (Some(node), None) | (None, Some(node)) => node.clone(),
                (None, None) => continue,
            });
        }
        Self { nodes }
    }

    /// Returns the paths that are members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            right.map(|right| Node {
                element: left.element.clone(),
                member: left.member && right.member,
                children: left.children.intersection(&right.children),
            })
        })
    }

    /// Returns the members of this set that are not members of `other`.
    ///
    /// Children of members of `other` stay. To remove them too, use [`Set::recursive_difference`].
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            Some(right.map_or_else(
                || left.clone(),
                |right| Node {
                    element: left.element.clone(),
                    member: left.member && !right.member,
                    children: left.children.difference(&right.children),
                },
            ))
        })
    }

    /// Returns the members of this set that are neither members of `other` nor below one.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| match right {
            None => Some(left.clone()),
            Some(right) if right.member => None,
            Some(right) => Some(Node {
                element: left.element.clone(),
                member: left.member,
                children: left.children.recursive_difference(&right.children),
            }),
        })
    }

    /// Adds the members of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            *self = self.union(&other);
        }
    }

    /// Removes the members of `other`.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.prune(other, &|own, other| {
            own.member &= !other.member;
            own.children.subtract(&other.children);
        });
    }

    /// Removes the members of `other` and all below them.
    pub(crate) fn subtract_recursively(&mut self, other: &Self) {
        self.prune(other, &|own, other| {
            if other.member {
                own.member = false;
                own.children = Self::new();
            } else {
                own.children.subtract_recursively(&other.children);
            }
        });
    }

    /// Changes the nodes that both sets have, and removes nodes that become empty.
    fn prune(&mut self, other: &Self, change: &dyn Fn(&mut Node, &Node)) {
        let mut emptied = false;
        for node in &other.nodes {
            if let Ok(index) = self.search(&node.element) {
                change(&mut self.nodes[index], node);
                emptied |= self.nodes[index].is_empty();
            }
        }
        if emptied {
            self.nodes.retain(|node| !node.is_empty());
        }
    }

    /// Returns whether the parents of all members are members, too.
    pub(crate) fn is_closed(&self) -> bool {
        self.nodes
            .iter()
            .all(|node| node.member && node.children.is_closed())
    }

    /// Returns the members without members below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            element: node.element.clone(),
            member: node.member && node.children.is_empty(),
            children: node.children.leaves(),
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Calls `visit` for each member: the fields of an object first, then the members below them.
    pub fn for_each(&self, mut visit: impl FnMut(&[PathElement])) {
        self.visit(&mut Vec::new(), &mut visit);
    }

    /// Returns the members in the order of [`Set::for_each`].
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.for_each(|path| paths.push(Path(path.to_vec())));
        paths
    }

    fn visit(&self, prefix: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            prefix.push(node.element.clone());
            visit(prefix);
            prefix.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(node.element.clone());
            node.children.visit(prefix, visit);
            prefix.pop();
        }
    }

    /// Adds the declared fields that have members below them.
    ///
    /// A set that owns `.spec.replicas` then also owns `.spec`, but not the entry of a map without
    /// declared fields.
    pub(crate) fn with_declared_fields(&self, schema: &Schema, type_ref: &TypeRef) -> Self {
        let atom = schema.resolve(type_ref);
        let nodes = self.nodes.iter().map(|node| {
            let mut member = node.member;
            let child_type = match (&node.element, atom) {
                (PathElement::Field(name), Some(resolved)) => resolved.map().map(|map| {
                    let field = map.fields.get(&**name);
                    member |= field.is_some() && !node.children.is_empty();
                    field.map_or(&map.element, |field| &field.type_ref)
                }),
                (PathElement::Key(_), Some(resolved)) => resolved.list().map(|list| &list.element),
                _ => None,
            };
            Node {
                element: node.element.clone(),
                member,
                children: node
                    .children
                    .with_declared_fields(schema, child_type.unwrap_or(&TypeRef::Undeclared)),
            }
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Returns whether the element itself is a member.
    pub(crate) fn has(&self, element: &PathElement) -> bool {
        self.node(element).is_some_and(|node| node.member)
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn node(&self, element: &PathElement) -> Option<&Node> {
        let index = self.search(element).ok()?;
        self.nodes.get(index)
    }

    /// Returns the node of `element`, and creates it if it is missing.
    ///
    /// The caller makes the node a member or adds children, since a set has no empty nodes.
    pub(crate) fn node_mut(&mut self, element: &PathElement) -> &mut Node {
        let index = match self.search(element) {
            Ok(index) => index,
            Err(index) => {
                let node = Node {
                    element: element.clone(),
                    member: false,
                    children: Self::new(),
                };
                self.nodes.insert(index, node);
                index
            }
        };
        &mut self.nodes[index]
    }

    /// Adds a child with the members below it. `member`: the child itself is a member.
    pub(crate) fn add(&mut self, element: &PathElement, member: bool, children: Self) {
        if !member && children.is_empty() {
            return;
        }
        let node = self.node_mut(element);
        node.member |= member;
        if node.children.is_empty() {
            node.children = children;
        } else {
            node.children = node.children.union(&children);
        }
    }

    fn search(&self, element: &PathElement) -> Result<usize, usize> {
        // Compares with the last node first, because most sets are built in order.
        match self.nodes.last() {
            Some(last) if last.element < *element => Err(self.nodes.len()),
            None => Err(0),
            _ => self
                .nodes
                .binary_search_by(|node| node.element.cmp(element)),
        }
    }

    /// Merges the nodes of both sets by element, and keeps the results that are not empty.
    fn combine(&self, other: &Self, merge: impl Fn(&Node, Option<&Node>) -> Option<Node>) -> Self {
        let mut nodes = Vec::new();
        for pair in (Zip {
            left: &self.nodes,
            right: &other.nodes,
        }) {
            if let (Some(left), right) = pair
                && let Some(node) = merge(left, right)
                && !node.is_empty()
            {
                nodes.push(node);
            }
        }
        Self { nodes }
    }
}

impl<P: AsRef<[PathElement]>> FromIterator<P> for Set {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(path.as_ref());
        }
        set
    }
}

impl AsRef<[PathElement]> for Path {
    fn as_ref(&self) -> &[PathElement] {
        &self.0
    }
}

/// Formats one path per line.
impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths().iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            path.fmt(f)?;
        }
        Ok(())
    }
}

/// Iterator over the nodes of two sorted lists, paired by element.
struct Zip<'a> {
    left: &'a [Node],
    right: &'a [Node],
}

impl<'a> Iterator for Zip<'a> {
    type Item = (Option<&'a Node>, Option<&'a Node>);

    fn next(&mut self) -> Option<Self::Item> {
        let (take_left, take_right) = match (self.left.first(), self.right.first()) {
            (None, None) => return None,
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (Some(left), Some(right)) => {
                let order = left.element.cmp(&right.element);
                (order.is_le(), order.is_ge())
            }
        };
        let left = take_left.then(|| self.left.split_off_first()).flatten();
        let right = take_right.then(|| self.right.split_off_first()).flatten();
        Some((left, right))
    }
}
