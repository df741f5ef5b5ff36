//! Requests, each once, in the order in which they were first made.

use super::Requests;
use crate::workqueue::Key;
use hashbrown::HashSet;

pub(super) struct Unique<R> {
    ordered: Vec<R>,
    /// The same, once there are so many that looking through them takes long.
    known: HashSet<R>,
}

/// How many are looked through.
const FEW: usize = 16;

impl<R> Default for Unique<R> {
    fn default() -> Self {
        Self { ordered: Vec::new(), known: HashSet::new() }
    }
}

impl<R: Key> Unique<R> {
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

impl<R> IntoIterator for Unique<R> {
    type Item = R;
    type IntoIter = std::vec::IntoIter<R>;

    fn into_iter(self) -> Self::IntoIter {
        self.ordered.into_iter()
    }
}

impl<R: Key> Requests<R> for Unique<R> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.into_iter().for_each(add);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_and_in_order_however_many_there_are() {
        let mut unique = Unique::default();
        (0..100).chain(0..100).chain([3, 100, 99]).for_each(|number| unique.add(number));
        assert!(unique.into_iter().eq(0..101));
    }
}
