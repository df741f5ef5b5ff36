//! Tests of the manifests that the program prints for kubectl.

use super::process::{command, run_to_exit};
use anyhow::Result;
use serde_json::Value;
use std::process::Stdio;

fn documents(yaml: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(yaml)?)
}

fn names(yaml: &str) -> Result<Vec<String>> {
    let name = |it: &Value| format!("{} {}", it["kind"], it["metadata"]["name"]).replace('"', "");
    Ok(documents(yaml)?.iter().map(name).collect())
}

#[tokio::test]
async fn crds_and_roles_are_printed_as_they_are_checked_in() -> Result<()> {
    let crds =
        include_str!("../../../config/crd/controlplane.cluster.x-k8s.io_captcontrolplanes.yaml");
    let rbac = include_str!("../../../config/rbac/endpoint.yaml");
    assert_eq!(run_to_exit(&["crds"]).await?.stdout, crds);
    assert_eq!(run_to_exit(&["rbac"]).await?.stdout, rbac);
    Ok(())
}

#[tokio::test]
async fn roles_of_the_opt_in_controller_are_printed_as_they_are_checked_in() -> Result<()> {
    let rbac = include_str!("../../../config/rbac/cluster.yaml");
    let printed = run_to_exit(&["rbac", "--controllers", "cluster"]).await?;
    assert_eq!(printed.stdout, rbac);
    let both = run_to_exit(&["rbac", "--controllers", "cluster,endpoint"]).await?;
    let expected = [
        "ClusterRole steersman-endpoint",
        "Role steersman-leader-election",
        "ClusterRole steersman-cluster",
        "ClusterRole steersman-cluster-providers",
    ];
    assert_eq!(names(&both.stdout)?, expected);
    Ok(())
}

#[tokio::test]
async fn the_help_states_what_must_not_run_beside_cluster_api() -> Result<()> {
    for command in ["run", "crds", "rbac", "doctor"] {
        let help = run_to_exit(&[command, "--help"]).await?.stdout;
        let words: Vec<_> = help.split_whitespace().collect();
        let help = words.join(" ");
        for text in [
            "Default: all except `cluster` and `extension-config`.",
            "Run these two only where Cluster API's own controllers do not run",
            "opt-in: do not run it beside Cluster API's own controllers",
        ] {
            assert!(help.contains(text), "{text} in {help}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn manifests_of_extension_configs_are_printed_as_they_are_checked_in() -> Result<()> {
    let crds = include_str!("../../../config/crd/runtime.cluster.x-k8s.io_extensionconfigs.yaml");
    let rbac = include_str!("../../../config/rbac/extension-config.yaml");
    let flags = ["--controllers", "extension-config"];
    for (command, expected) in [("crds", crds), ("rbac", rbac)] {
        let printed = run_to_exit(&[&[command][..], &flags].concat()).await?;
        assert_eq!(printed.stdout, expected, "{command}");
    }
    Ok(())
}

#[tokio::test]
async fn the_kinds_of_cluster_api_are_printed_only_as_dependencies() -> Result<()> {
    let flags = ["crds", "--controllers", "cluster", "--with-dependencies"];
    let all = names(&run_to_exit(&flags).await?.stdout)?;
    let kinds = [
        "clusters",
        "machines",
        "machinedeployments",
        "machinesets",
        "machinepools",
    ];
    let expected = kinds.map(|kind| format!("CustomResourceDefinition {kind}.cluster.x-k8s.io"));
    assert_eq!(all, expected);

    let none = run_to_exit(&flags[..3]).await?;
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        none.stderr,
        "error: cannot print CRDs of cluster: other projects define its kinds; add \
         `--with-dependencies`\n"
    );
    Ok(())
}

#[tokio::test]
async fn with_dependencies_prints_crds_of_the_kinds_that_are_read() -> Result<()> {
    let all = names(&run_to_exit(&["crds", "--with-dependencies"]).await?.stdout)?;
    for kind in [
        "captcontrolplanes.controlplane.cluster.x-k8s.io",
        "workspacetemplateapplies.infrastructure.cluster.x-k8s.io",
        "clusters.cluster.x-k8s.io",
        "workspaces.tf.upbound.io",
    ] {
        assert!(
            all.contains(&format!("CustomResourceDefinition {kind}")),
            "{kind} in {all:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn rbac_for_a_service_account_prints_bindings() -> Result<()> {
    let all = names(
        &run_to_exit(&["rbac", "--service-account", "capi/steersman"])
            .await?
            .stdout,
    )?;
    for wanted in [
        "ServiceAccount steersman",
        "ClusterRoleBinding steersman-endpoint",
        "RoleBinding steersman-leader-election",
    ] {
        assert!(all.iter().any(|it| it == wanted), "{wanted} in {all:?}");
    }
    Ok(())
}

#[tokio::test]
async fn rbac_for_namespaces_prints_a_role_and_a_binding_in_each() -> Result<()> {
    let flags = [
        "rbac",
        "--namespaces",
        "shop,bank",
        "--service-account",
        "capi/steersman",
    ];
    let all = documents(&run_to_exit(&flags).await?.stdout)?;
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let describe = |it: &Value| {
        [
            &it["kind"],
            &it["metadata"]["namespace"],
            &it["metadata"]["name"],
        ]
        .map(text)
        .join(" ")
    };
    let mut described: Vec<_> = all.iter().map(describe).collect();
    described.sort_unstable();
    assert_eq!(
        described,
        [
            "ClusterRole - steersman-endpoint",
            "ClusterRoleBinding - steersman-endpoint",
            "Role bank steersman-endpoint",
            "Role capi steersman-leader-election",
            "Role shop steersman-endpoint",
            "RoleBinding bank steersman-endpoint",
            "RoleBinding capi steersman-leader-election",
            "RoleBinding shop steersman-endpoint",
            "ServiceAccount capi steersman",
        ]
    );
    for it in all.iter().filter(|it| it["kind"] == "ClusterRole") {
        let resources = it["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|rule| text(&rule["resources"][0]));
        assert_eq!(
            resources.collect::<Vec<_>>(),
            ["workspaces", "customresourcedefinitions"]
        );
    }
    for it in all.iter().filter(|it| it["kind"] == "RoleBinding") {
        assert_eq!(
            (&it["roleRef"]["kind"], &it["subjects"][0]["namespace"]),
            (&"Role".into(), &"capi".into())
        );
    }
    assert_eq!(
        run_to_exit(&["rbac", "--namespaces", "Shop"]).await?.code,
        Some(2)
    );
    Ok(())
}

#[tokio::test]
async fn a_closed_pipe_is_not_an_error() -> Result<()> {
    let mut crds = command(&["crds"]);
    let mut child = crds.stdout(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output().await?;
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).as_ref()
        ),
        (Some(0), "")
    );
    Ok(())
}

#[tokio::test]
async fn every_shell_has_completions() -> Result<()> {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run_to_exit(&["completions", shell]).await?.stdout;
        assert!(
            script.contains("doctor") && script.contains("kubeconfig"),
            "{shell}"
        );
    }
    Ok(())
}
