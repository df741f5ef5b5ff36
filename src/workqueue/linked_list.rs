//! Doubly linked lists over numbered nodes. Moving a key between lists allocates nothing.
//!
//! Invariant: a node is in at most one list at a time. The owner of the nodes tracks which.

/// Number that stands for no node.
pub(super) const NIL: u32 = u32::MAX;

/// Neighbours of a node, undefined while it is in no list.
#[derive(Clone, Copy)]
pub(super) struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    pub(super) const UNLINKED: Self = Self {
        prev: NIL,
        next: NIL,
    };
}

/// Storage of the nodes.
pub(super) trait Nodes {
    fn links(&mut self, node: u32) -> &mut Links;
}

#[derive(Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
    };

    pub(super) fn is_empty(self) -> bool {
        self.head == NIL
    }

    pub(super) fn front(self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    pub(super) fn back(self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    pub(super) fn push_back(&mut self, nodes: &mut impl Nodes, node: u32) {
        *nodes.links(node) = Links {
            prev: self.tail,
            next: NIL,
        };
        if self.tail == NIL {
            self.head = node;
        } else {
            nodes.links(self.tail).next = node;
        }
        self.tail = node;
    }

    pub(super) fn push_front(&mut self, nodes: &mut impl Nodes, node: u32) {
        *nodes.links(node) = Links {
            prev: NIL,
            next: self.head,
        };
        if self.head == NIL {
            self.tail = node;
        } else {
            nodes.links(self.head).prev = node;
        }
        self.head = node;
    }

    /// Removes `node`, which must be in this list.
    pub(super) fn unlink(&mut self, nodes: &mut impl Nodes, node: u32) {
        let Links { prev, next } = *nodes.links(node);
        if prev == NIL {
            self.head = next;
        } else {
            nodes.links(prev).next = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            nodes.links(next).prev = prev;
        }
    }

    pub(super) fn pop_front(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        let node = self.front()?;
        self.head = nodes.links(node).next;
        if self.head == NIL {
            self.tail = NIL;
        } else {
            nodes.links(self.head).prev = NIL;
        }
        Some(node)
    }

    pub(super) fn pop_back(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        let node = self.back()?;
        self.unlink(nodes, node);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    impl Nodes for Vec<Links> {
        fn links(&mut self, node: u32) -> &mut Links {
            &mut self[node as usize]
        }
    }

    steersman_testkit::properties! {
        #[test]
        fn a_list_behaves_like_a_deque(steps in prop::collection::vec((0..5u8, 0..16u32), 0..200)) {
            let mut nodes = vec![Links::UNLINKED; 16];
            let (mut list, mut model) = (List::EMPTY, VecDeque::new());
            for (step, node) in steps {
                match step {
                    0 if !model.contains(&node) => {
                        list.push_back(&mut nodes, node);
                        model.push_back(node);
                    }
                    4 if !model.contains(&node) => {
                        list.push_front(&mut nodes, node);
                        model.push_front(node);
                    }
                    1 => prop_assert_eq!(list.pop_front(&mut nodes), model.pop_front()),
                    2 => prop_assert_eq!(list.pop_back(&mut nodes), model.pop_back()),
                    3 if model.contains(&node) => {
                        list.unlink(&mut nodes, node);
                        model.retain(|&other| other != node);
                    }
                    _ => {}
                }
                prop_assert_eq!(list.front(), model.front().copied());
                prop_assert_eq!(list.back(), model.back().copied());
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
        }
    }
}
