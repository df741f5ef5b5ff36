//! Filters of field sets, for fields that an endpoint resets.

use crate::{path::PathElement, set::Set};
use std::cmp::Ordering;

/// Selects the fields that an endpoint tracks.
///
/// The main endpoint of an object ignores changes of `status`, and `/status` ignores changes of
/// `spec`. A manager must not own fields that the endpoint ignores.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Drops these fields and all below them.
    Exclude(Set),
    /// Keeps only fields that match the pattern.
    Include(Pattern),
}

impl Filter {
    /// Returns the members of `set` that pass the filter.
    #[must_use]
    pub fn apply(&self, mut set: Set) -> Set {
        match self {
            Self::Exclude(excluded) => {
                set.subtract_recursively(excluded);
                set
            }
            Self::Include(pattern) => pattern.select(&set),
        }
    }
}

/// Pattern of field paths with wildcards.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Children that match. `None` matches all fields.
    children: Option<Vec<(Step, Pattern)>>,
}

/// Path element or wildcard. `None` matches any element.
type Step = Option<PathElement>;

impl Pattern {
    /// Matches the elements of a path and all fields below it. `None` is a wildcard.
    pub fn prefix(steps: impl IntoIterator<Item = Option<PathElement>>) -> Self {
        let mut steps = steps.into_iter();
        match steps.next() {
            None => Self { children: None },
            Some(step) => Self {
                children: Some(vec![(step, Self::prefix(steps.collect::<Vec<_>>()))]),
            },
        }
    }

    /// Combines two patterns. The result can match less than both patterns together.
    ///
    /// It reproduces a defect of the Go implementation. The two patterns are combined only below
    /// some of the elements that both have, and never below a wildcard. Below the other elements,
    /// the result matches the same fields as `self`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let (Some(own), Some(others)) = (self.children, other.children) else {
            return Self { children: None };
        };
        let mut children = own.clone();
        for (step, pattern) in others {
            match search(&own, &step) {
                Some(index) => children[index].1 = children[index].1.clone().or(pattern),
                None => children.push((step, pattern)),
            }
        }
        // Sorts wildcards first. `select` uses the first child that matches.
        children.sort_by(|(left, _), (right, _)| left.cmp(right));
        Self {
            children: Some(children),
        }
    }

    fn select(&self, set: &Set) -> Set {
        let Some(children) = &self.children else {
            return set.clone();
        };
        let mut selected = Set::new();
        for node in set.nodes() {
            let first = children
                .iter()
                .find(|(step, _)| step.as_ref().is_none_or(|step| *step == node.element));
            if let Some((_, pattern)) = first {
                selected.add(&node.element, node.member, pattern.select(&node.children));
            }
        }
        selected
    }
}

/// Returns the index of a step, if the search of the Go implementation finds it.
///
/// That binary search compares in reverse order, so it misses some steps of longer lists.
fn search(children: &[(Step, Pattern)], step: &Step) -> Option<usize> {
    let step = step.as_ref()?;
    let compare = |index: usize| {
        children[index]
            .0
            .as_ref()
            .map_or(Ordering::Less, |own| own.cmp(step))
    };
    let (mut low, mut high) = (0, children.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if compare(middle).is_gt() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (low < children.len() && compare(low).is_eq()).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;

    fn set(paths: &[&str]) -> Set {
        paths
            .iter()
            .map(|path| Path::fields(path.split('.')))
            .collect()
    }

    #[test]
    fn an_excluded_field_is_dropped_with_all_below_it() {
        let filter = Filter::Exclude(set(&["status", "spec.a"]));
        let fields = set(&["spec", "spec.a.b", "spec.c", "status", "status.x"]);
        assert_eq!(filter.apply(fields), set(&["spec", "spec.c"]));
    }

    #[test]
    fn an_included_pattern_keeps_the_path_to_it_and_all_below_it() {
        let field = |name: &str| Some(PathElement::field(name));
        let pattern = Pattern::prefix([field("spec"), None, field("image")])
            .or(Pattern::prefix([field("metadata")]));
        let fields = set(&[
            "metadata.labels",
            "spec",
            "spec.a.image",
            "spec.a.image.tag",
            "spec.a.name",
            "status",
        ]);
        let kept = set(&[
            "metadata.labels",
            "spec",
            "spec.a.image",
            "spec.a.image.tag",
        ]);
        assert_eq!(Filter::Include(pattern).apply(fields), kept);
    }
}
