//! What the typed decoder of the real server stumbles over, where a schema sees only strings: a 400, not a 422.

use crate::resource::Resource;
use crate::status::{Failure, Result};
use base64::Engine as _;
use serde_json::Value;

/// Refuses an object, in the form its resource serves, that cannot be read as its kind.
pub(crate) fn check(resource: &Resource, object: &Value) -> Result<()> {
    let wrong = match (&*resource.group, &*resource.kind) {
        ("", "Secret") => bytes(&object["data"]),
        ("", "ConfigMap") => bytes(&object["binaryData"]),
        ("coordination.k8s.io", "Lease") => {
            micro_time(&object["spec"]["acquireTime"]).or_else(|| micro_time(&object["spec"]["renewTime"]))
        }
        (_, "Event") => micro_time(&object["eventTime"]).or_else(|| micro_time(&object["series"]["lastObservedTime"])),
        _ => None,
    };
    match wrong {
        None => Ok(()),
        Some(wrong) => {
            let (kind, version) = (&resource.kind, &resource.version);
            let message = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {wrong}");
            Err(Failure::bad_request(message))
        }
    }
}

fn bytes(map: &Value) -> Option<String> {
    let texts = map.as_object()?.values().filter_map(Value::as_str);
    texts.into_iter().find_map(|text| {
        let error = base64::engine::general_purpose::STANDARD.decode(text).err()?;
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) => at,
            _ => text.len(),
        };
        Some(format!("illegal base64 data at input byte {at}"))
    })
}

/// A time in microseconds must be written with all six digits of them.
fn micro_time(time: &Value) -> Option<String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let text = time.as_str()?;
    let fraction = text.get(19..26).and_then(|it| it.strip_prefix('.'));
    let has_six = fraction.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    let ends = text.get(26..).is_some_and(|zone| zone == "Z" || zone.starts_with(['+', '-']));
    let is_time = text.parse::<jiff::Timestamp>().is_ok();
    (!(has_six && ends && is_time)).then(|| format!("parsing time \"{text}\" as \"{LAYOUT}\": cannot parse it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_as(group: &str, plural: &str, object: Value) -> Result<()> {
        let all = super::super::resources();
        check(all.iter().find(|it| &*it.group == group && &*it.plural == plural).unwrap(), &object)
    }

    #[test]
    fn a_lease_is_renewed_to_the_microsecond() {
        let renew = |time: &str| check_as("coordination.k8s.io", "leases", json!({"spec": {"renewTime": time}}));
        assert!(renew("2026-01-02T03:04:05.000006Z").is_ok());
        assert!(renew("2026-01-02T03:04:05.000006+01:00").is_ok());
        for wrong in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.000000006Z", "now"] {
            let failure = renew(wrong).unwrap_err();
            assert_eq!(failure.code, 400, "{wrong}");
            assert!(failure.message.starts_with("Lease in version \"v1\" cannot be handled as a Lease: parsing time"));
        }
    }

    #[test]
    fn both_views_of_an_event_have_times_to_the_microsecond() {
        for group in ["", "events.k8s.io"] {
            let event = json!({"series": {"lastObservedTime": "2026-01-02T03:04:05Z"}});
            assert_eq!(check_as(group, "events", event).unwrap_err().code, 400);
        }
    }

    #[test]
    fn a_secret_s_data_is_base64() {
        assert!(check_as("", "secrets", json!({"data": {"a": "YQ=="}})).is_ok());
        let failure = check_as("", "secrets", json!({"data": {"a": "YQ==", "b": "ab!d"}})).unwrap_err();
        assert_eq!((failure.code, failure.message.ends_with("illegal base64 data at input byte 2")), (400, true));
    }
}
