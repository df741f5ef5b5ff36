//! Names for generated objects.

use rand::RngExt;

/// Longest name of a generated object. Values of labels have the same limit.
const MAX_LENGTH: usize = 63;
/// Number of random characters.
const SUFFIX_LENGTH: usize = 5;
/// Consonants and digits: they form no words, and none of them looks like another.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns `prefix` and five random characters, in at most 63 bytes.
///
/// Use it for objects that are created from a template. The prefix is cut to 58 bytes, and is not
/// otherwise changed or validated.
///
/// ```
/// use steersman_controllers::cluster_api::generate_name;
///
/// let name = generate_name("worker-");
/// assert!(name.starts_with("worker-") && name.len() == 12);
/// ```
pub fn generate_name(prefix: &str) -> String {
    let end = prefix.floor_char_boundary(MAX_LENGTH - SUFFIX_LENGTH);
    let mut name = prefix[..end].to_owned();
    let mut random = rand::rng();
    name.extend((0..SUFFIX_LENGTH).map(|_| {
        let index = random.random_range(0..ALPHABET.len());
        char::from(ALPHABET[index])
    }));
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_generated_name_has_the_prefix_and_five_random_characters() {
        let names: HashSet<_> = (0..100).map(|_| generate_name("purpleTemplate-")).collect();
        assert!(names.len() > 90, "{names:?}");
        for name in names {
            let suffix = name.strip_prefix("purpleTemplate-").expect("the prefix");
            assert_eq!(suffix.len(), 5);
            assert!(suffix.bytes().all(|byte| ALPHABET.contains(&byte)));
        }
    }

    #[test]
    fn a_generated_name_has_at_most_63_bytes() {
        for length in [57, 58, 59, 253] {
            let prefix = "a".repeat(length);
            let name = generate_name(&prefix);
            assert_eq!(name.len(), length.min(58) + 5);
            assert!(name.starts_with(&prefix[..length.min(58)]));
        }
        let name = generate_name(&"ä".repeat(40));
        assert_eq!(name.len(), 63, "58 bytes are 29 whole characters");
        assert_eq!(generate_name(&"€".repeat(40)).len(), 19 * 3 + 5);
    }
}
