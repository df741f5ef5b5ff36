//! Path of a value, kept on the stack and formatted only for an error.

use std::fmt;

/// Maximum number of bytes of a name in a path. A longer name ends with dots: each error contains
/// the path, also those of alternatives of which another one is valid.
const MAX_NAME: usize = 1024;

/// Path of a value in an object.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    element: PathElement<'a>,
}

#[derive(Clone, Copy)]
enum PathElement<'a> {
    /// The root. It is formatted as an empty text.
    Root,
    /// `.name`
    Field(&'a str),
    /// `[name]`
    Key(&'a str),
    /// `[0]`
    Index(usize),
}

impl<'a> Path<'a> {
    pub(super) const ROOT: Path<'static> = Path {
        parent: None,
        element: PathElement::Root,
    };

    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            element: PathElement::Field(name),
        }
    }

    pub(super) fn key(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            element: PathElement::Key(name),
        }
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            element: PathElement::Index(index),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self.element, PathElement::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.element {
            PathElement::Root => Ok(()),
            PathElement::Field(name) if self.parent.is_none_or(Path::is_root) => {
                write!(f, "{}", Name(name))
            }
            PathElement::Field(name) => write!(f, ".{}", Name(name)),
            PathElement::Key(name) => write!(f, "[{}]", Name(name)),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Displays a name with at most [`MAX_NAME`] bytes.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.floor_char_boundary(MAX_NAME)];
        f.write_str(shown)?;
        if shown.len() < self.0.len() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_ends_with_dots() {
        let (exact, long) = ("x".repeat(MAX_NAME), "é".repeat(MAX_NAME));
        assert_eq!(Path::ROOT.field(&exact).to_string(), exact);
        let shown = format!("[{}...]", "é".repeat(MAX_NAME / 2));
        assert_eq!(Path::ROOT.key(&long).to_string(), shown);
    }

    #[test]
    fn a_path_has_the_format_of_kubernetes() {
        let spec = Path::ROOT.field("spec");
        let list = spec.field("list");
        let item = list.index(3);
        assert_eq!(item.key("a.b").to_string(), "spec.list[3][a.b]");
        assert_eq!(item.field("name").to_string(), "spec.list[3].name");
        assert_eq!(Path::ROOT.to_string(), "");
    }
}
