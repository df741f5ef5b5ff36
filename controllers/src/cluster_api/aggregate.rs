//! Several errors as one.

use std::{collections::HashSet, fmt};

/// Several errors. Prints `[first, second]`, each text once.
///
/// [`aggregate`] creates it. It has no `source()`, because it prints its errors with their causes.
#[derive(Debug)]
pub struct Aggregate(Vec<anyhow::Error>);

impl Aggregate {
    /// Returns the errors, with those of nested aggregates in their place.
    pub fn errors(&self) -> &[anyhow::Error] {
        &self.0
    }
}

impl FromIterator<anyhow::Error> for Aggregate {
    fn from_iter<I: IntoIterator<Item = anyhow::Error>>(errors: I) -> Self {
        let mut flat = Vec::new();
        for error in errors {
            match error.downcast::<Self>() {
                Ok(Self(nested)) => flat.extend(nested),
                Err(error) => flat.push(error),
            }
        }
        Self(flat)
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(self.0.iter().map(|error| format!("{error:#}"))))
    }
}

impl std::error::Error for Aggregate {}

/// Returns `[first, second]`, each text once. A single text is returned without brackets.
pub(crate) fn joined(texts: impl Iterator<Item = String>) -> String {
    let mut seen = HashSet::new();
    let mut texts: Vec<_> = texts.filter(|text| seen.insert(text.clone())).collect();
    match texts.len() {
        1 => texts.remove(0),
        _ => format!("[{}]", texts.join(", ")),
    }
}

/// Combines errors into one; `None` if there are none.
///
/// A single error is returned as it is, so that it keeps its type. Several become an
/// [`Aggregate`]. Use it in a reconciler that continues after an error.
///
/// ```
/// use anyhow::anyhow;
/// use steersman_controllers::cluster_api::aggregate;
///
/// assert!(aggregate([]).is_none());
/// assert_eq!(aggregate([anyhow!("a")]).unwrap().to_string(), "a");
/// let errors = [anyhow!("a"), anyhow!("b").context("reading"), anyhow!("a")];
/// assert_eq!(aggregate(errors).unwrap().to_string(), "[a, reading: b]");
/// ```
pub fn aggregate(errors: impl IntoIterator<Item = anyhow::Error>) -> Option<anyhow::Error> {
    let Aggregate(mut errors) = errors.into_iter().collect();
    if errors.len() < 2 {
        return errors.pop();
    }
    Some(Aggregate(errors).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn text(errors: impl IntoIterator<Item = &'static str>) -> Option<String> {
        let errors = errors.into_iter().map(|text| anyhow!(text));
        aggregate(errors).map(|error| error.to_string())
    }

    #[test]
    fn an_aggregate_prints_each_text_once() {
        assert_eq!(text([]), None);
        assert_eq!(text(["a"]).as_deref(), Some("a"));
        assert_eq!(text(["a", "a"]).as_deref(), Some("a"));
        assert_eq!(text(["b", "a", "b"]).as_deref(), Some("[b, a]"));
    }

    #[test]
    fn an_aggregate_contains_the_errors_of_nested_aggregates() {
        let nested = aggregate([anyhow!("b"), anyhow!("a")]).expect("two errors");
        let error = aggregate([anyhow!("a"), nested, anyhow!("c")]).expect("three errors");
        assert_eq!(error.to_string(), "[a, b, c]");
        let errors = error.downcast_ref::<Aggregate>().expect("an aggregate");
        assert_eq!(errors.errors().len(), 4);
    }

    #[test]
    fn a_single_error_keeps_its_type() {
        let error = aggregate([std::io::Error::other("full").into()]).expect("one error");
        assert!(error.downcast_ref::<std::io::Error>().is_some());
    }
}
