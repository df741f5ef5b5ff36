//! Incremental parser of a page of a list.
//!
//! A page may have 100,000 objects, so the caller yields between items. Items are not decoded here.

use serde::{
    Deserialize,
    de::{Error, IgnoredAny},
};
use serde_json::{Deserializer, value::RawValue};

/// Remaining input of a page.
pub(super) struct PageParser<'a> {
    rest: &'a [u8],
    next: Next,
    metadata: Option<PageMeta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
    pub(super) r#continue: String,
}

/// State of the parser: the next token.
#[derive(Clone, Copy)]
enum Next {
    Begin,
    Field,
    Item,
    End,
}

impl<'a> PageParser<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            rest: text,
            next: Next::Begin,
            metadata: None,
        }
    }

    /// Returns the next item, or `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<&'a RawValue>, serde_json::Error> {
        loop {
            match self.next {
                Next::Begin => {
                    self.expect(b'{')?;
                    self.next = if self.eat(b'}') {
                        Next::End
                    } else {
                        Next::Field
                    };
                }
                Next::Field => {
                    let name: String = self.value()?;
                    self.expect(b':')?;
                    match name.as_str() {
                        "metadata" => self.metadata = Some(self.value()?),
                        "items" if self.eat(b'[') => {
                            if !self.eat(b']') {
                                self.next = Next::Item;
                                continue;
                            }
                        }
                        // Go encodes an empty list as `null`.
                        "items" => self.value::<()>()?,
                        _ => drop(self.value::<IgnoredAny>()?),
                    }
                    self.end_field()?;
                }
                Next::Item => {
                    let item = self.value()?;
                    if !self.eat(b',') {
                        self.expect(b']')?;
                        self.end_field()?;
                    }
                    return Ok(Some(item));
                }
                Next::End if self.rest.trim_ascii().is_empty() => return Ok(None),
                Next::End => return Err(Error::custom("data after the end of the page")),
            }
        }
    }

    /// Returns the list's metadata. Call it after the last item.
    pub(super) fn end(self) -> Result<PageMeta, serde_json::Error> {
        self.metadata
            .ok_or_else(|| Error::missing_field("metadata"))
    }

    fn end_field(&mut self) -> Result<(), serde_json::Error> {
        self.next = if self.eat(b',') {
            Next::Field
        } else {
            Next::End
        };
        if let Next::End = self.next {
            self.expect(b'}')
        } else {
            Ok(())
        }
    }

    fn value<T: Deserialize<'a>>(&mut self) -> Result<T, serde_json::Error> {
        let mut values = Deserializer::from_slice(self.rest).into_iter();
        let value = values
            .next()
            .unwrap_or_else(|| Err(Error::custom("unexpected end of the page")))?;
        self.rest = &self.rest[values.byte_offset()..];
        Ok(value)
    }

    fn eat(&mut self, symbol: u8) -> bool {
        self.rest = self.rest.trim_ascii_start();
        let rest = self.rest.strip_prefix(&[symbol]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, symbol: u8) -> Result<(), serde_json::Error> {
        if self.eat(symbol) {
            Ok(())
        } else {
            Err(Error::custom(format!(
                "page without `{}`",
                char::from(symbol)
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<&str>, PageMeta), serde_json::Error> {
        let (mut page, mut items) = (PageParser::new(text.as_bytes()), Vec::new());
        while let Some(item) = page.next()? {
            items.push(item.get());
        }
        Ok((items, page.end()?))
    }

    #[test]
    fn a_page_returns_its_items_unchanged() {
        let meta = r#""metadata":{"resourceVersion":"9","continue":"abc","more":[1]}"#;
        let items = r#""items":[{"a": 1},"not an object",[],-1.5,null]"#;
        for text in [
            format!(r#"{{"kind":"PodList",{meta},{items}}}"#),
            format!(r#"{{{items},"more":{{"items":[7]}},{meta}}}"#),
            format!(
                "\n{{ {} ,\t{} }} ",
                meta.replace(':', " : "),
                items.replace(':', " : ").replace(",[]", " , []")
            ),
            format!("{{{meta},{items}}}").replace(r#""items""#, r#""\u0069tems""#),
        ] {
            let (items, meta) = read(&text).expect("a page");
            assert_eq!(
                (meta.resource_version.as_str(), meta.r#continue.as_str()),
                ("9", "abc"),
                "{text}"
            );
            let all: Vec<_> = items.iter().map(|item| item.replace(' ', "")).collect();
            assert_eq!(
                all,
                [r#"{"a":1}"#, r#""notanobject""#, "[]", "-1.5", "null"],
                "{text}"
            );
        }
    }

    #[test]
    fn a_page_may_have_no_items() {
        for text in [
            r#"{"metadata":{},"items":null}"#,
            r#"{"items":[ ],"metadata":{}}"#,
            r#"{"metadata":{}}"#,
        ] {
            assert!(read(text).expect("a page").0.is_empty(), "{text}");
        }
    }

    #[test]
    fn an_invalid_page_is_an_error() {
        let whole = r#"{"metadata":{},"items":[{"a":"\u00e4"},{"b":[1,2]}],"kind":"PodList"}"#;
        assert!(read(whole).is_ok());
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        for text in [
            "{}",
            "[]",
            "null",
            "<html>",
            r#"{"items":[]}"#,
            r#"{"items":{},"metadata":{}}"#,
            r#"{"items":[1 2],"metadata":{}}"#,
            r#"{"items":[1,],"metadata":{}}"#,
            r#"{"items":[,1],"metadata":{}}"#,
            r#"{"metadata":{},}"#,
            r#"{"metadata":{}}}"#,
            r#"{"metadata":null}"#,
            "{metadata:{}}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
