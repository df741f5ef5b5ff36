//! Warnings of an answer, limited as the real server limits them.

/// Characters of all warnings together, from which on each of them is truncated.
const MAX_TOTAL: usize = 4096;
/// Characters of one truncated warning.
const MAX_TRUNCATED: usize = 256;

/// Distinct warnings in the order in which they were added.
///
/// Warnings with more than 4,096 characters together are truncated to 256 characters each, and no
/// more are added once the truncated ones have 4,096 characters. The numbers are those of the real
/// server's `Warning` headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings {
    texts: Vec<String>,
    /// Characters of the texts as they are sent.
    written: usize,
    truncating: bool,
}

impl Warnings {
    fn is_full(&self) -> bool {
        self.truncating && self.written >= MAX_TOTAL
    }

    pub(crate) fn add(&mut self, text: String) {
        if text.is_empty() || self.is_full() || self.texts.contains(&text) {
            return;
        }
        self.texts.push(text);
        self.written = self.sent().map(|text| text.chars().count()).sum();
        if !self.truncating && self.written > MAX_TOTAL {
            self.truncating = true;
            self.written = self.sent().map(|text| text.chars().count()).sum();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the warnings as they are sent.
    pub(crate) fn sent(&self) -> impl Iterator<Item = &str> {
        self.texts
            .iter()
            .map(|text| match text.char_indices().nth(MAX_TRUNCATED) {
                Some((end, _)) if self.truncating => &text[..end],
                _ => text.as_str(),
            })
    }
}

impl Extend<String> for Warnings {
    fn extend<I: IntoIterator<Item = String>>(&mut self, texts: I) {
        let mut texts = texts.into_iter();
        while !self.is_full()
            && let Some(text) = texts.next()
        {
            self.add(text);
        }
    }
}

impl FromIterator<String> for Warnings {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        let mut warnings = Self::default();
        warnings.extend(texts);
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_warnings_are_sent_whole_and_once() {
        let warnings: Warnings = ["a", "b".repeat(4095).as_str(), "a", ""]
            .map(String::from)
            .into_iter()
            .collect();
        assert_eq!(
            warnings.sent().collect::<Vec<_>>(),
            ["a", &"b".repeat(4095)]
        );
    }

    #[test]
    fn many_warnings_are_truncated_and_cut_off() {
        let warnings: Warnings = (0..1000)
            .map(|index| format!("{index}{}", "é".repeat(400)))
            .collect();
        let sent: Vec<_> = warnings.sent().collect();
        assert_eq!(sent.len(), MAX_TOTAL / MAX_TRUNCATED);
        assert!(
            sent.iter()
                .all(|text| text.chars().count() == MAX_TRUNCATED)
        );
    }
}
