//! Lists of errors in a request body, bounded in number and size.
//!
//! The real server lists every error. A small body with many errors then causes a response of many
//! megabytes, for example when each error contains the whole list that it is about.

use super::FieldError;
use std::ops::Deref;

/// Maximum number of errors in one list.
pub(crate) const MAX_ITEMS: usize = 100;
/// Maximum number of bytes of text in one list.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Errors about invalid fields of an object.
pub(crate) type FieldErrors = Bounded<FieldError>;
/// Errors about unknown and duplicate fields of a body.
pub(crate) type StrictErrors = Bounded<String>;

/// A list that keeps the first [`MAX_ITEMS`] items and the first [`MAX_BYTES`] bytes of their text.
///
/// Items that are added to a full list are dropped. Check [`is_full`](Self::is_full) first where an
/// item is expensive to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bounded<T> {
    items: Vec<T>,
    bytes: usize,
}

/// An item of a [`Bounded`] list.
pub(crate) trait Text {
    /// Returns the number of bytes of text.
    fn size(&self) -> usize;

    /// Shortens the text to exactly `size` bytes, which is less than its size.
    fn shorten(&mut self, size: usize);
}

/// Length of a [`Bounded`] list, for [`Bounded::split_off`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    items: usize,
    bytes: usize,
}

impl<T: Text> Bounded<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
        }
    }

    /// Reports whether further items are dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= MAX_ITEMS || self.bytes >= MAX_BYTES
    }

    /// Adds an item unless the list is full. Shortens the item if it is too large for the rest of
    /// the list.
    pub(crate) fn push(&mut self, mut item: T) {
        if self.is_full() {
            return;
        }
        let rest = MAX_BYTES - self.bytes;
        if item.size() > rest {
            item.shorten(rest);
        }
        self.bytes += item.size();
        self.items.push(item);
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            items: self.items.len(),
            bytes: self.bytes,
        }
    }

    /// Removes the items that were added after `mark`, and returns them.
    pub(crate) fn split_off(&mut self, mark: Mark) -> Self {
        let bytes = self.bytes - mark.bytes;
        self.bytes = mark.bytes;
        Self {
            items: self.items.split_off(mark.items),
            bytes,
        }
    }
}

impl FieldErrors {
    pub(crate) fn sort_by_field(&mut self) {
        self.items.sort_by(|one, other| one.field.cmp(&other.field));
    }
}

impl StrictErrors {
    pub(crate) fn sort(&mut self) {
        self.items.sort_unstable();
    }
}

impl<T: Text> Default for Bounded<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Bounded<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// Stops reading the iterator once the list is full.
impl<T: Text> Extend<T> for Bounded<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let mut items = items.into_iter();
        while !self.is_full()
            && let Some(item) = items.next()
        {
            self.push(item);
        }
    }
}

impl<T: Text> FromIterator<T> for Bounded<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::new();
        list.extend(items);
        list
    }
}

impl<T: Text> From<T> for Bounded<T> {
    fn from(item: T) -> Self {
        [item].into_iter().collect()
    }
}

impl<T> IntoIterator for Bounded<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Bounded<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl Text for String {
    fn size(&self) -> usize {
        self.len()
    }

    /// Ends the text with dots to show that it is incomplete.
    fn shorten(&mut self, size: usize) {
        self.truncate(self.floor_char_boundary(size.saturating_sub(3)));
        while self.len() < size {
            self.push('.');
        }
    }
}

impl Text for FieldError {
    fn size(&self) -> usize {
        self.field.len() + self.body.len()
    }

    fn shorten(&mut self, size: usize) {
        if self.field.len() > size / 2 {
            self.field.shorten(size / 2);
        }
        let rest = size - self.field.len();
        self.body.shorten(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_the_first_items_and_stops_reading() {
        let mut read = 0;
        let items = std::iter::repeat_with(|| {
            read += 1;
            String::from("x")
        });
        let list: StrictErrors = items.take(1000).collect();
        assert!(list.is_full());
        assert_eq!((list.len(), read), (MAX_ITEMS, MAX_ITEMS));
    }

    #[test]
    fn a_large_item_is_shortened_to_the_rest_of_the_list() {
        let mut list = StrictErrors::new();
        list.push("é".repeat(MAX_BYTES / 2 - 10));
        assert!(!list.is_full());
        list.push("é".repeat(100));
        assert!(list.is_full() && list[1].ends_with("..."));
        assert_eq!(list.iter().map(String::len).sum::<usize>(), MAX_BYTES);
        list.push("dropped".into());
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn a_field_error_is_shortened_in_its_field_and_its_text() {
        let long = "x".repeat(MAX_BYTES);
        let errors = FieldErrors::from(FieldError::required(long.clone(), &long));
        assert_eq!(
            (errors[0].field.len(), errors[0].body.len()),
            (MAX_BYTES / 2, MAX_BYTES / 2)
        );
        let errors = FieldErrors::from(FieldError::required("spec", &long));
        assert_eq!(
            (errors[0].field.as_str(), errors[0].size()),
            ("spec", MAX_BYTES)
        );
    }

    #[test]
    fn a_list_returns_to_a_mark() {
        let mut list = StrictErrors::from(String::from("a"));
        let mark = list.mark();
        list.push("b".repeat(MAX_BYTES));
        assert!(list.is_full());
        assert_eq!(list.split_off(mark).len(), 1);
        assert!(!list.is_full());
        list.push("c".into());
        assert_eq!(*list, ["a", "c"]);
    }
}
