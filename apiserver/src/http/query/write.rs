//! Options of a write in the query.

use super::Query;
use crate::status::{Failure, FieldError, Result};
use serde_json::json;

/// Kind of a write, which determines the name of its options and their rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Create,
    Update,
    Patch,
    Apply,
}

/// Treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of a create, update or patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Does everything except storing the object.
    pub(crate) dry_run: bool,
    /// Name of the field manager. `None` to derive it from the user agent.
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    /// Takes over fields of other managers.
    pub(crate) force: bool,
}

impl WriteOptions {
    /// Parses the query.
    pub(crate) fn parse(query: &Query, write: WriteKind) -> Result<Self> {
        let manager = query.text("fieldManager");
        let mut errors = Vec::new();
        if write == WriteKind::Apply && manager.is_empty() {
            errors.push(FieldError::required(
                "fieldManager",
                "is required for apply patch",
            ));
        }
        if write == WriteKind::Patch && query.get("force").is_some() {
            errors.push(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        if manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        }
        if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let reason = format!(
                "invalid character U+{:04X} (at position {at})",
                u32::from(c)
            );
            errors.push(FieldError::invalid("fieldManager", &manager.into(), reason));
        }
        let dry_run: Vec<_> = query.all("dryRun").collect();
        if dry_run.iter().any(|&value| value != "All") {
            errors.push(FieldError::not_supported(
                "dryRun",
                &json!(dry_run),
                ["All"],
            ));
        }
        let field_validation = match query.text("fieldValidation") {
            "" => Some(FieldValidation::default()),
            "Ignore" => Some(FieldValidation::Ignore),
            "Warn" => Some(FieldValidation::Warn),
            "Strict" => Some(FieldValidation::Strict),
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &other.into(),
                    known,
                ));
                None
            }
        };
        match field_validation {
            Some(field_validation) if errors.is_empty() => Ok(Self {
                dry_run: !dry_run.is_empty(),
                field_manager: Some(manager.to_owned()).filter(|manager| !manager.is_empty()),
                field_validation,
                force: query.flag("force").unwrap_or(false),
            }),
            _ => Err(Failure::invalid(
                "meta.k8s.io",
                write.options_kind(),
                "",
                errors,
            )),
        }
    }
}

impl WriteKind {
    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(query: &str, write: WriteKind) -> Result<WriteOptions> {
        WriteOptions::parse(&Query::parse(Some(query)), write)
    }

    fn fields(failure: &Failure) -> Vec<&str> {
        let details = failure.details.as_ref().unwrap();
        details
            .causes
            .iter()
            .map(|cause| cause.field.as_str())
            .collect()
    }

    #[test]
    fn invalid_write_options_are_rejected() {
        let options = write(
            "dryRun=All&fieldManager=me&fieldValidation=Strict&force=true",
            WriteKind::Apply,
        )
        .unwrap();
        assert!(options.dry_run && options.force);
        assert_eq!(options.field_manager.as_deref(), Some("me"));
        assert_eq!(options.field_validation, FieldValidation::Strict);
        assert_eq!(
            write("", WriteKind::Create).unwrap(),
            WriteOptions::default()
        );
        for (query, kind, field) in [
            ("dryRun=Some", WriteKind::Create, "dryRun"),
            ("dryRun=", WriteKind::Create, "dryRun"),
            (
                "fieldValidation=strict",
                WriteKind::Update,
                "fieldValidation",
            ),
            ("force=false", WriteKind::Patch, "force"),
            ("", WriteKind::Apply, "fieldManager"),
            ("fieldManager=a%07", WriteKind::Create, "fieldManager"),
        ] {
            let failure = write(query, kind).unwrap_err();
            assert_eq!(
                (failure.code, fields(&failure)),
                (422, vec![field]),
                "{query}"
            );
        }
        assert_eq!(
            write("fieldValidation=x", WriteKind::Update)
                .unwrap_err()
                .message,
            "UpdateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"x\": \
             supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
        );
    }

    steersman_testkit::properties! {
        #[test]
        fn parsing_never_panics(query in r"((dryRun|fieldManager|force)=[a-zA-Z0-9%=]{0,6}&){0,4}|\PC*") {
            let _ = write(&query, WriteKind::Apply);
        }
    }
}
