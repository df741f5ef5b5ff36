//! Set of requests in the order of insertion.

use super::Requests;
use crate::workqueue::Key;
use hashbrown::HashSet;

pub(super) struct Deduped<R> {
    ordered: Vec<R>,
    /// Equal to `ordered`, once that is too long for a linear search.
    known: HashSet<R>,
}

/// Maximum length for a linear search.
const FEW: usize = 16;

impl<R> Default for Deduped<R> {
    fn default() -> Self {
        Self {
            ordered: Vec::new(),
            known: HashSet::new(),
        }
    }
}

impl<R: Key> Deduped<R> {
    pub(super) fn add(&mut self, request: R) {
        if self.ordered.len() == FEW {
            self.known.extend(self.ordered.iter().cloned());
        }
        let is_new = if self.ordered.len() < FEW {
            !self.ordered.contains(&request)
        } else {
            self.known.insert(request.clone())
        };
        if is_new {
            self.ordered.push(request);
        }
    }
}

impl<R> IntoIterator for Deduped<R> {
    type Item = R;
    type IntoIter = std::vec::IntoIter<R>;

    fn into_iter(self) -> Self::IntoIter {
        self.ordered.into_iter()
    }
}

impl<R: Key> Requests<R> for Deduped<R> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.into_iter().for_each(add);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_unique_and_in_order() {
        let mut unique = Deduped::default();
        (0..100)
            .chain(0..100)
            .chain([3, 100, 99])
            .for_each(|number| unique.add(number));
        assert!(unique.into_iter().eq(0..101));
    }
}
