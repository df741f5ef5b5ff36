//! Tests of the environment that the tests of this binary share.

use super::support::definition;
use k8s_openapi::api::{authentication::v1::SelfSubjectReview, core::v1::ConfigMap};
use kube_client::{
    Api,
    api::{ListParams, PostParams},
};
use steersman::testing::{Environment, Error, started_or_skipped};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn the_shared_environment_outlives_the_runtime_that_started_it() {
    let directories: Vec<_> = (0..2)
        .filter_map(|_| {
            runtime().block_on(async {
                let environment = started_or_skipped(Environment::shared().await)?;
                environment
                    .client()
                    .unwrap()
                    .apiserver_version()
                    .await
                    .unwrap();
                environment.directory().map(ToOwned::to_owned)
            })
        })
        .collect();
    assert!(
        directories.windows(2).all(|two| two[0] == two[1]),
        "{directories:?}"
    );
}

#[tokio::test]
async fn a_user_has_the_name_and_groups_of_the_certificate_and_no_permissions() {
    let Some(environment) = started_or_skipped(Environment::shared().await) else {
        return;
    };
    let alice = environment
        .user("alice", &["dev", "ops", "night shift"])
        .unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(alice.client().unwrap());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let known = review.status.unwrap().user_info.unwrap();
    assert_eq!(known.username.as_deref(), Some("alice"));
    assert_eq!(
        known.groups.unwrap(),
        ["dev", "ops", "night shift", "system:authenticated"]
    );

    let maps: Api<ConfigMap> = Api::default_namespaced(alice.client().unwrap());
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&error, kube_client::Error::Api(status) if status.code == 403),
        "{error:?}"
    );
}

#[tokio::test]
async fn crds_are_read_from_a_directory_installed_and_uninstalled() {
    let Some(environment) = started_or_skipped(Environment::shared().await) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let [gears, cogs] = [
        definition("gears", "Gear", "shared.example.com"),
        definition("cogs", "Cog", "shared.example.com"),
    ];
    std::fs::write(
        directory.path().join("all.yaml"),
        format!("{gears}\n---\nkind: Namespace\n---\n{cogs}\n"),
    )
    .unwrap();
    let definitions = steersman::testing::read_definitions(directory.path()).unwrap();
    assert_eq!(definitions, [gears.clone(), cogs]);
    environment.install(&definitions).await.unwrap();
    environment.uninstall(&definitions).await.unwrap();
    environment
        .uninstall(&definitions)
        .await
        .expect("missing CRDs are not an error");

    let mut wrong = gears;
    wrong["metadata"]["name"] = "elsewhere".into();
    let error = environment.install([wrong]).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("must be spec.names.plural+\".\"+spec.group"),
        "{error}"
    );
    let error = environment
        .install([serde_json::json!({"kind": "Namespace"})])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Definition { .. }), "{error}");
}
