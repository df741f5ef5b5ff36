//! Versions that a CRD lists for a contract, in its labels.

use super::ContractError;
use crate::cluster_api::{GROUP, VERSION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::cmp::Ordering;

/// Contract, and the API version of a kind that implements it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractVersion {
    /// Version of the contract, such as `v1beta2`.
    pub contract: String,
    /// Version of the kind, such as `v1alpha1`.
    pub version: String,
}

/// Returns the contracts that are compatible with a contract, the newest first.
///
/// The contract itself is one of them.
pub fn compatible_contracts(contract: &str) -> Vec<&str> {
    if contract == VERSION {
        vec![VERSION, "v1beta1"]
    } else {
        vec![contract]
    }
}

/// Returns the newest contract that a CRD implements, and its latest API version for it.
///
/// The label `cluster.x-k8s.io/<contract>` lists API versions, separated by `_`. The first
/// compatible contract with such a label decides, also if the label of an older contract lists
/// a later version. An empty label counts as missing.
///
/// ```
/// use steersman_controllers::external::contract::latest_contract_and_api_version;
/// # use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
///
/// let labels = [("cluster.x-k8s.io/v1beta1".to_owned(), "v1beta1_v1beta2".to_owned())];
/// let metadata = ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() };
/// let latest = latest_contract_and_api_version(&metadata, "v1beta2")?;
/// assert_eq!((&*latest.contract, &*latest.version), ("v1beta1", "v1beta2"));
/// # Ok::<_, steersman_controllers::external::contract::ContractError>(())
/// ```
pub fn latest_contract_and_api_version(
    metadata: &ObjectMeta,
    current: &str,
) -> Result<ContractVersion, ContractError> {
    if current.is_empty() {
        return Err(ContractError::NoCurrentContract);
    }
    let contracts = compatible_contracts(current);
    for contract in &contracts {
        let versions = label(metadata, contract).unwrap_or_default();
        let latest = versions.split('_').max_by(|a, b| compare_versions(a, b));
        if let Some(latest) = latest.filter(|_| !versions.is_empty()) {
            return Ok(ContractVersion {
                contract: (*contract).to_owned(),
                version: latest.to_owned(),
            });
        }
    }
    Err(ContractError::NoVersions {
        crd: metadata.name.clone().unwrap_or_default(),
        contracts: contracts.into_iter().map(ToOwned::to_owned).collect(),
    })
}

/// Returns the newest contract for which a CRD lists an API version.
pub(super) fn contract_of_version(metadata: &ObjectMeta, version: &str) -> Option<String> {
    let labels = metadata.labels.iter().flatten();
    let contracts = labels.filter_map(|(key, versions)| {
        let contract = key.strip_prefix(GROUP)?.strip_prefix('/')?;
        let listed = versions.split('_').any(|listed| listed == version);
        listed.then_some(contract)
    });
    contracts
        .max_by(|a, b| compare_versions(a, b))
        .map(ToOwned::to_owned)
}

fn label<'a>(metadata: &'a ObjectMeta, contract: &str) -> Option<&'a str> {
    let labels = metadata.labels.as_ref()?;
    labels.get(&format!("{GROUP}/{contract}")).map(|it| &**it)
}

/// Compares versions as Kubernetes does: `v3alpha1 < v1beta1 < v1beta2 < v2beta1 < v1 < v2`.
///
/// A text that is not such a version is less than any that is. Two of them are in the reverse
/// order of their texts.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (Parsed::of(a), Parsed::of(b)) {
        (None, None) => b.cmp(a),
        (a, b) => a.cmp(&b),
    }
}

/// Version in the order of Kubernetes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Parsed {
    stage: Stage,
    major: i64,
    minor: i64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

impl Parsed {
    /// Parses `v1`, `v1beta1` or `v1alpha1`. Numbers above `i64::MAX` are not accepted.
    fn of(version: &str) -> Option<Self> {
        let numbers = version.strip_prefix('v')?;
        let staged = [("alpha", Stage::Alpha), ("beta", Stage::Beta)]
            .into_iter()
            .find_map(|(name, stage)| Some((numbers.split_once(name)?, stage)));
        let Some(((major, minor), stage)) = staged else {
            return Some(Self {
                stage: Stage::Stable,
                major: number(numbers)?,
                minor: 0,
            });
        };
        Some(Self {
            stage,
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

fn number(digits: &str) -> Option<i64> {
    // `parse` also accepts a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(labels: &[(&str, &str)]) -> ObjectMeta {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ObjectMeta {
            name: Some("things.example.com".into()),
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        }
    }

    fn latest(labels: &[(&str, &str)]) -> Result<(String, String), String> {
        latest_contract_and_api_version(&metadata(labels), "v1beta2")
            .map(|latest| (latest.contract, latest.version))
            .map_err(|error| error.to_string())
    }

    fn found(contract: &str, version: &str) -> (String, String) {
        (contract.to_owned(), version.to_owned())
    }

    #[test]
    fn versions_are_ordered_by_stage_then_major_then_minor() {
        let sorted = [
            "foo", "bar", "v", "", "v1alpha1", "v1alpha2", "v3alpha1", "v1beta1", "v1beta2",
            "v1beta10", "v2beta1", "v1", "v2", "v10",
        ];
        for (index, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                let expected = if index < 4 && other < 4 {
                    b.cmp(a)
                } else if index < 4 || other < 4 {
                    (index >= 4).cmp(&(other >= 4))
                } else {
                    index.cmp(&other)
                };
                assert_eq!(compare_versions(a, b), expected, "{a} {b}");
            }
        }
    }

    #[test]
    fn a_text_that_is_not_a_version_is_less_than_any_version() {
        let invalid = [
            "1",
            "v",
            "v1gamma1",
            "v1beta",
            "vbeta1",
            "v1beta1alpha1",
            "v+1",
            "v1-1",
            "v1beta-1",
            "v99999999999999999999",
            "v1beta99999999999999999999",
            "V1",
        ];
        for text in invalid {
            assert_eq!(compare_versions(text, "v1alpha1"), Ordering::Less, "{text}");
        }
        assert_eq!(
            compare_versions("v9223372036854775807", "v1"),
            Ordering::Greater
        );
    }

    #[test]
    fn of_two_texts_that_are_not_versions_the_first_in_the_alphabet_is_the_latest() {
        assert_eq!(
            latest(&[("cluster.x-k8s.io/v1beta2", "foo_bar")]),
            Ok(found("v1beta2", "bar"))
        );
    }

    #[test]
    fn the_latest_version_of_an_unordered_label_is_chosen() {
        for label in [
            "v1beta1_v1_v1alpha3_v2beta1",
            "v1_v1",
            "v1_",
            "_v1",
            "v1__v1beta1",
            "x_v1",
        ] {
            assert_eq!(
                latest(&[("cluster.x-k8s.io/v1beta2", label)]),
                Ok(found("v1beta2", "v1")),
                "{label}"
            );
        }
        assert_eq!(
            latest(&[("cluster.x-k8s.io/v1beta2", "_")]),
            Ok(found("v1beta2", ""))
        );
    }

    #[test]
    fn the_newest_contract_decides_whatever_older_ones_list() {
        let both = [
            ("cluster.x-k8s.io/v1beta1", "v1"),
            ("cluster.x-k8s.io/v1beta2", "v1alpha1"),
        ];
        assert_eq!(latest(&both), Ok(found("v1beta2", "v1alpha1")));
        assert_eq!(latest(&both[..1]), Ok(found("v1beta1", "v1")));
        let empty = [both[0], ("cluster.x-k8s.io/v1beta2", "")];
        assert_eq!(latest(&empty), Ok(found("v1beta1", "v1")));
    }

    #[test]
    fn a_crd_without_a_label_for_a_compatible_contract_is_an_error() {
        let text = "cannot find any versions matching contract versions [\"v1beta2\" \"v1beta1\"] \
                    for CRD things.example.com as contract version label(s) are either missing or \
                    empty (see https://cluster-api.sigs.k8s.io/developer/providers/contracts/\
                    overview.html#api-version-labels)";
        let without = [
            vec![],
            vec![("cluster.x-k8s.io/v1beta1", "")],
            vec![("cluster.x-k8s.io/v1alpha4", "v1")],
            vec![("other.x-k8s.io/v1beta2", "v1")],
        ];
        for labels in without {
            assert_eq!(latest(&labels), Err(text.to_owned()));
        }
        let unlabelled = ObjectMeta::default();
        let error = latest_contract_and_api_version(&unlabelled, "v1alpha4").expect_err("no label");
        assert!(error.to_string().contains("[\"v1alpha4\"] for CRD  as"));
    }

    #[test]
    fn another_contract_is_compatible_only_with_itself() {
        let labels = metadata(&[("cluster.x-k8s.io/v1alpha4", "v1alpha4_v1alpha3")]);
        let latest = latest_contract_and_api_version(&labels, "v1alpha4").expect("a version");
        assert_eq!(latest.version, "v1alpha4");
        let error = latest_contract_and_api_version(&labels, "").expect_err("no contract");
        assert_eq!(
            error.to_string(),
            "current contract version cannot be empty"
        );
    }

    #[test]
    fn the_contract_of_a_version_is_the_newest_that_lists_it() {
        let labels = metadata(&[
            ("cluster.x-k8s.io/v1beta1", "v1beta1_v1beta2"),
            ("cluster.x-k8s.io/v1beta2", "v1beta2"),
            ("example.com/v1beta3", "v1beta2"),
        ]);
        let contract = |version| contract_of_version(&labels, version);
        assert_eq!(contract("v1beta1").as_deref(), Some("v1beta1"));
        assert_eq!(contract("v1beta2").as_deref(), Some("v1beta2"));
        assert_eq!(contract("v1"), None);
    }
}
