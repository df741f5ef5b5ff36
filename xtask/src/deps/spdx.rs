//! Evaluates SPDX licence expressions.
//!
//! It supports the part of the grammar that crates use: `AND`, which binds tighter than `OR`,
//! parentheses, `X WITH exception` as one licence, and the deprecated `MIT/Apache-2.0` for `OR`.

use anyhow::{Result, bail};

/// Returns whether `expression` can be satisfied with `allowed` licences only.
pub(super) fn satisfied(expression: &str, allowed: impl Fn(&str) -> bool) -> Result<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut parser = Parser {
        words: spaced.split_whitespace().collect(),
        at: 0,
        allowed,
    };
    let answer = parser.any()?;
    match parser.words.get(parser.at) {
        None => Ok(answer),
        Some(word) => bail!("unexpected `{word}` in the licence expression `{expression}`"),
    }
}

struct Parser<'a, F> {
    words: Vec<&'a str>,
    at: usize,
    allowed: F,
}

impl<F: Fn(&str) -> bool> Parser<'_, F> {
    fn any(&mut self) -> Result<bool> {
        let mut answer = self.all()?;
        while self.accept("OR") {
            answer |= self.all()?;
        }
        Ok(answer)
    }

    fn all(&mut self) -> Result<bool> {
        let mut answer = self.one()?;
        while self.accept("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    fn one(&mut self) -> Result<bool> {
        if self.accept("(") {
            let answer = self.any()?;
            if !self.accept(")") {
                bail!("a parenthesis is not closed in the licence expression");
            }
            return Ok(answer);
        }
        let mut license = self.name()?.to_owned();
        if self.accept("WITH") {
            license = format!("{license} WITH {}", self.name()?);
        }
        Ok((self.allowed)(&license))
    }

    fn name(&mut self) -> Result<&str> {
        match self.words.get(self.at) {
            Some(word) if !["AND", "OR", "WITH", "(", ")"].contains(word) => {
                self.at += 1;
                Ok(word)
            }
            Some(word) => bail!("expected a licence instead of `{word}` in the licence expression"),
            None => bail!("expected a licence at the end of the licence expression"),
        }
    }

    fn accept(&mut self, word: &str) -> bool {
        let here = self.words.get(self.at) == Some(&word);
        self.at += usize::from(here);
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine(expression: &str) -> bool {
        let list = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        satisfied(expression, |license| list.contains(&license)).unwrap()
    }

    #[test]
    fn one_allowed_choice_is_enough() {
        assert!(fine("MIT"));
        assert!(fine("GPL-3.0-only OR MIT"));
        assert!(fine("MIT OR Apache-2.0 OR LGPL-2.1-or-later"));
        assert!(!fine("GPL-3.0-only OR MPL-2.0"));
    }

    #[test]
    fn everything_joined_by_and_must_be_allowed() {
        assert!(fine("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!fine("(MIT OR Apache-2.0) AND MPL-2.0"));
        assert!(!fine("MIT AND GPL-3.0+"));
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert!(fine("MIT OR GPL-3.0-only AND MPL-2.0"));
        assert!(!fine("(MIT OR GPL-3.0-only) AND MPL-2.0"));
    }

    #[test]
    fn a_slash_means_or() {
        assert!(fine("MPL-2.0/MIT"));
        assert!(fine("MIT / Apache-2.0"));
        assert!(!fine("MPL-2.0/Unlicense"));
    }

    #[test]
    fn an_exception_is_part_of_its_licence() {
        assert!(fine("Apache-2.0 WITH LLVM-exception"));
        assert!(!fine("GPL-3.0-only WITH GCC-exception-3.1"));
        assert!(!fine("MIT WITH LLVM-exception"));
    }

    #[test]
    fn an_invalid_expression_is_an_error() {
        for invalid in [
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "AND MIT",
            "MIT WITH",
            "()",
        ] {
            assert!(satisfied(invalid, |_| true).is_err(), "{invalid}");
        }
    }
}
