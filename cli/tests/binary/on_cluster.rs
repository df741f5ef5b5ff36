//! Tests of `steersman run` and `steersman doctor` on a cluster.

use super::{
    kubectl::kubectl,
    process::{Process, command, run_to_exit, text},
};
use anyhow::{Context, Result};
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::ClusterRole};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::time::Duration;
use steersman::{
    client::Patch,
    prelude::*,
    testing::{Env, TestServer, run_real},
};
use steersman_apiserver::Authority;
use steersman_controllers::{
    cluster_api::Cluster,
    endpoint::{CAPTControlPlane, ENDPOINT_HEALTHY, WorkspaceTemplateApply, workspace_kind},
};
use tokio::time::sleep;

/// Installs the CRDs that the program prints.
async fn install(env: &Env) -> Result<()> {
    let printed = run_to_exit(&["crds", "--with-dependencies"]).await?.stdout;
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&printed)?;
    Ok(env.install(definitions).await?)
}

/// Creates a control plane with its Cluster, and a workspace with an output.
async fn create_control_plane(client: &Client, namespace: &str) -> Result<()> {
    let kind = workspace_kind();
    let workspace = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": namespace}, "spec": {}});
    client
        .create::<DynamicObject>(&serde_json::from_value(workspace)?)
        .await?;
    let outputs = json!({"status": {"atProvider": {"outputs": {"cluster_endpoint": "https://one.example.com"}}}});
    let key = ObjectKey::cluster_scoped(namespace);
    client
        .status()
        .dynamic(&kind)
        .patch(&key, &Patch::Merge(outputs))
        .await?;
    let client = client.namespace(namespace);
    let reference = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "CAPTControlPlane", "name": "plane"});
    let cluster = json!({"metadata": {"name": "plane"}, "spec": {"controlPlaneRef": reference}});
    client
        .create::<Cluster>(&serde_json::from_value(cluster)?)
        .await?;
    let apply = json!({"metadata": {"name": "apply"}, "spec": {}});
    client
        .create::<WorkspaceTemplateApply>(&serde_json::from_value(apply)?)
        .await?;
    let status = Patch::Merge(json!({"status": {"workspaceName": namespace}}));
    client
        .status()
        .patch::<WorkspaceTemplateApply>(&ObjectKey::new(namespace, "apply"), &status)
        .await?;
    let spec = json!({"version": "1.31", "workspaceTemplateRef": {"name": "eks"}, "workspaceTemplateApplyName": "apply"});
    client
        .create::<CAPTControlPlane>(&serde_json::from_value(
            json!({"metadata": {"name": "plane"}, "spec": spec}),
        )?)
        .await?;
    Ok(())
}

async fn until(holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
    while !holds().await? {
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

steersman::env_test! {
    async fn run_reconciles_on_the_cluster_of_the_kubeconfig_until_it_is_stopped(env: Env) -> Result<()> {
        install(&env).await?;
        let (namespace, kubeconfig) = (env.namespace("run").await?, env.kubeconfig().await?);
        let client = Client::new(env.client()?)?;
        let mut flags = vec!["run", "--kubeconfig", text(&kubeconfig), "--namespaces", &namespace, "--admin", "127.0.0.1:0"];
        flags.extend(["--controllers", "endpoint", "--workers", "2", "--endpoint-health", "--log", "json", "--leader-elect", "--leader-elect-namespace", &namespace]);
        let mut run = Process::start(command(&flags))?;
        run.wait_for_log("connected to cluster").await?;
        let synced = run.wait_for_log("informer synced").await?;
        assert!(serde_json::from_str::<Value>(&synced)?["kind"].is_string(), "{synced}");
        create_control_plane(&client, &namespace).await?;
        let key = ObjectKey::new(&namespace, "plane");
        until(async || {
            let cluster = client.get::<Cluster>(&key).await?.context("missing object")?;
            Ok(cluster.spec.control_plane_endpoint.as_ref().is_some_and(|it| it.host() == Some("one.example.com")))
        })
        .await?;
        until(async || {
            let plane = client.get::<CAPTControlPlane>(&key).await?.context("missing object")?;
            let mut conditions = plane.status.iter().flat_map(|status| &status.conditions);
            // An endpoint without a CA certificate is not checked.
            Ok(conditions.any(|it| it.type_ == ENDPOINT_HEALTHY && it.reason == "NoAuthority"))
        })
        .await?;
        let lease = ObjectKey::new(&namespace, "steersman");
        let holder = async || anyhow::Ok(client.get::<Lease>(&lease).await?.and_then(|it| it.spec.clone()?.holder_identity));
        assert!(holder().await?.is_some_and(|it| !it.is_empty()));
        let run_to_exit = run.stop_with("TERM").await?;
        assert_eq!((run_to_exit.code, run_to_exit.stdout.as_str()), (Some(0), ""), "{}", run_to_exit.stderr);
        for line in run_to_exit.stderr.lines() {
            serde_json::from_str::<Value>(line).with_context(|| line.to_owned())?;
        }
        assert!(holder().await?.is_none_or(|it| it.is_empty()), "the Lease is released");
        Ok(())
    }

    async fn the_admin_server_of_run_serves_tls_and_requires_a_token(env: Env) -> Result<()> {
        install(&env).await?;
        let (directory, authority) = (tempfile::tempdir()?, Authority::generate()?);
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let signed = authority.server_certificate()?;
        std::fs::write(&certificate, signed.certificate_pem)?;
        std::fs::write(&key, signed.key_pem)?;
        let kubeconfig = env.kubeconfig().await?;
        let mut flags = vec!["run", "--kubeconfig", text(&kubeconfig), "--log", "json", "--admin", "127.0.0.1:0"];
        flags.extend(["--admin-tls-cert", text(&certificate), "--admin-tls-key", text(&key), "--admin-access", "reviewed"]);
        let mut run = Process::start(command(&flags))?;
        let serving: Value = serde_json::from_str(&run.wait_for_log("serving metrics").await?)?;
        let address = serving["address"].as_str().context("an address")?;

        let mut config = Config::new(format!("https://{address}").parse()?);
        config.root_cert = Some(vec![authority.ca_der()]);
        let admin = kube::Client::try_from(config)?;
        for (path, code) in [("/healthz", 200), ("/metrics", 401), ("/debug/queues", 401)] {
            let answer = admin.send(http::Request::get(path).body(kube::client::Body::empty())?).await?;
            assert_eq!(answer.status(), code, "{path}");
        }
        assert_eq!(run.stop_with("TERM").await?.code, Some(0));
        Ok(())
    }

    async fn doctor_succeeds_on_a_complete_cluster(env: Env) -> Result<()> {
        install(&env).await?;
        let kubeconfig = env.kubeconfig().await?;
        let doctor = run_to_exit(&["doctor", "--kubeconfig", text(&kubeconfig), "--leader-elect"]).await?;
        assert_eq!((doctor.code, doctor.stderr.as_str()), (Some(0), ""), "{}", doctor.stdout);
        assert!(!doctor.stdout.contains("missing"), "{}", doctor.stdout);
        for line in ["ok       cluster: ", "ok       clock: ", "ok       CRD: CAPTControlPlane of "] {
            assert!(doctor.stdout.contains(line), "{line} in {}", doctor.stdout);
        }
        // The embedded server has no authorization and no access reviews.
        let permission = match env {
            Env::Real(_) => "ok       permission: get, watch, create, update leases.coordination.k8s.io in default",
            _ => "note     permission: not checked",
        };
        assert!(doctor.stdout.contains(permission), "{}", doctor.stdout);
        Ok(())
    }
}

#[tokio::test]
async fn a_second_signal_exits_at_once() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (kubeconfig, crds) = (
        directory.path().join("kubeconfig"),
        directory.path().join("crds.yaml"),
    );
    std::fs::write(&crds, run_to_exit(&["crds"]).await?.stdout)?;
    let mut server = Process::start(command(&[
        "apiserver",
        "--kubeconfig",
        text(&kubeconfig),
        "--crd",
        text(&crds),
    ]))?;
    server.wait_for_line("ready http://127.0.0.1:").await?;
    let flags = [
        "run",
        "--kubeconfig",
        text(&kubeconfig),
        "--admin",
        "127.0.0.1:0",
        "--leader-elect",
    ];
    let mut run = Process::start(command(&flags))?;
    run.wait_for_log("starting workers").await?;
    // From now on the Lease cannot be released.
    server.signal("STOP").await?;
    run.signal("INT").await?;
    run.wait_for_log("second signal exits at once").await?;
    let run_to_exit = run.stop_with("INT").await?;
    assert_eq!(run_to_exit.code, Some(1), "{}", run_to_exit.stderr);
    assert!(
        run_to_exit
            .stderr
            .lines()
            .last()
            .is_some_and(|line| line.contains("exiting at once")),
        "{}",
        run_to_exit.stderr
    );
    Ok(())
}

#[test]
fn kubectl_applies_the_printed_manifests() {
    run_real(async |env: Env| -> Result<()> {
        let (namespace, kubeconfig, directory) = (
            env.namespace("apply").await?,
            env.kubeconfig().await?,
            tempfile::tempdir()?,
        );
        let account = format!("{namespace}/steersman");
        for arguments in [
            &["crds", "--with-dependencies"][..],
            &["rbac", "--service-account", &account],
            &[
                "rbac",
                "--service-account",
                &account,
                "--namespaces",
                &namespace,
            ],
        ] {
            let file = directory.path().join(arguments[0]);
            std::fs::write(&file, run_to_exit(arguments).await?.stdout)?;
            if let Some(said) = kubectl(
                &kubeconfig,
                &format!("apply --server-side --force-conflicts -f {}", text(&file)),
            )
            .await?
            {
                assert!(said.lines().count() >= 4, "{said}");
            }
        }
        Ok(())
    });
}

#[test]
fn invalid_and_insufficient_credentials_have_different_exit_codes() {
    run_real(async |env: Env| -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("kubeconfig");
        let admin: Value =
            serde_json::from_str(&std::fs::read_to_string(env.kubeconfig().await?)?)?;
        for (user, code, word) in [
            (json!({"token": "wrong"}), 3, "credentials"),
            (json!({}), 4, "steersman rbac"),
        ] {
            let mut config = admin.clone();
            config["users"][0]["user"] = user;
            std::fs::write(&path, config.to_string())?;
            for verb in ["run", "doctor"] {
                let run_to_exit = run_to_exit(&[verb, "--kubeconfig", text(&path)]).await?;
                assert_eq!(run_to_exit.code, Some(code), "{}", run_to_exit.stderr);
                assert!(
                    run_to_exit
                        .stderr
                        .lines()
                        .last()
                        .is_some_and(|line| line.contains(word)),
                    "{}",
                    run_to_exit.stderr
                );
            }
        }
        Ok(())
    });
}

#[test]
fn missing_permissions_are_reported_with_the_command_that_prints_the_roles() {
    run_real(async |env: Env| -> Result<()> {
        let Env::Real(real) = &env else {
            unreachable!("run_real passes the real server")
        };
        install(&env).await?;
        let (namespace, directory) = (env.namespace("doctor").await?, tempfile::tempdir()?);
        let (user, path) = (
            real.environment().user("restricted", &[])?,
            directory.path().join("kubeconfig"),
        );
        user.write_kubeconfig(&path)?;
        let flags = ["--kubeconfig", text(&path), "--namespaces", &namespace];
        let run = run_to_exit(&[&["run"][..], &flags].concat()).await?;
        assert_eq!(run.code, Some(4), "{}", run.stderr);
        assert!(
            run.stderr.contains("missing permissions: ") && run.stderr.contains("steersman rbac"),
            "{}",
            run.stderr
        );

        // All verbs but one.
        let mut role = steersman_controllers::endpoint::roles(&[]).remove(0);
        role["metadata"]["name"] = namespace.as_str().into();
        for rule in role["rules"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter(|rule| rule["resources"][0] == "secrets")
        {
            rule["verbs"] = json!(["list", "watch"]);
        }
        let client = Client::new(env.client()?)?;
        client
            .create::<ClusterRole>(&serde_json::from_value(role)?)
            .await?;
        let binding = json!({
            "metadata": {"name": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "restricted"}],
        });
        client
            .create::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>(&serde_json::from_value(
                binding,
            )?)
            .await?;
        let mut doctor = run_to_exit(&[&["doctor"][..], &flags].concat()).await?;
        // The authorizer of the server learns of roles by a watch.
        while doctor.stdout.matches("missing  ").count() > 1 {
            doctor = run_to_exit(&[&["doctor"][..], &flags].concat()).await?;
        }
        assert_eq!(doctor.code, Some(4), "{}", doctor.stdout);
        assert!(
            doctor
                .stdout
                .contains(&format!("missing  permission: get secrets in {namespace}")),
            "{}",
            doctor.stdout
        );
        assert!(
            doctor.stdout.contains(
                "ok       permission: get, list, watch workspaces.tf.upbound.io everywhere"
            ),
            "{}",
            doctor.stdout
        );
        Ok(())
    });
}

#[test]
fn the_roles_for_a_namespace_are_sufficient_there_and_not_elsewhere() {
    run_real(async |env: Env| -> Result<()> {
        let Env::Real(real) = &env else {
            unreachable!("run_real passes the real server")
        };
        install(&env).await?;
        let (namespace, other) = (
            env.namespace("limited").await?,
            env.namespace("other").await?,
        );
        let (user, directory) = (
            real.environment().user(&namespace, &[])?,
            tempfile::tempdir()?,
        );
        let path = directory.path().join("kubeconfig");
        user.write_kubeconfig(&path)?;
        let account = format!("{namespace}/steersman");
        let printed = run_to_exit(&[
            "rbac",
            "--namespaces",
            &namespace,
            "--service-account",
            &account,
        ])
        .await?
        .stdout;
        let client = Client::new(env.client()?)?;
        for mut object in serde_saphyr::from_multiple::<Value>(&printed)? {
            // Other tests apply cluster-scoped objects of the same name.
            for pointer in ["/metadata/name", "/roleRef/name"] {
                if let Some(name) = object.pointer_mut(pointer) {
                    *name =
                        format!("{namespace}-{}", name.as_str().context("missing name")?).into();
                }
            }
            if object["subjects"].is_array() {
                object["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": namespace}]);
            }
            client
                .create::<DynamicObject>(&serde_json::from_value(object)?)
                .await?;
        }
        let doctor = async |namespaces: &str| {
            let flags = [
                "--leader-elect",
                "--leader-elect-namespace",
                &namespace,
                "--namespaces",
                namespaces,
            ];
            run_to_exit(&[&["doctor", "--kubeconfig", text(&path)][..], &flags].concat()).await
        };
        // The authorizer of the server learns of roles by a watch.
        until(async || Ok(doctor(&namespace).await?.code == Some(0))).await?;
        let elsewhere = doctor(&other).await?;
        assert_eq!(elsewhere.code, Some(4), "{}", elsewhere.stdout);
        let missing = format!("missing  permission: get, list, watch secrets in {other}");
        assert!(elsewhere.stdout.contains(&missing), "{}", elsewhere.stdout);

        let flags = ["run", "--kubeconfig", text(&path), "--admin", "127.0.0.1:0"];
        let mut run = Process::start(command(
            &[&flags[..], &["--namespaces", &namespace]].concat(),
        ))?;
        run.wait_for_log("starting workers").await?;
        let stopped = run.stop_with("TERM").await?;
        assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
        assert!(
            !stopped.stderr.contains("permission missing"),
            "{}",
            stopped.stderr
        );
        let both = format!("{namespace},{other}");
        for (scope, place) in [
            (&["--namespaces", &both][..], format!("in {other}")),
            (&[], "everywhere".to_owned()),
        ] {
            let run = run_to_exit(&[&flags[..], scope].concat()).await?;
            assert_eq!(run.code, Some(4), "{}", run.stderr);
            let last = run.stderr.lines().last().unwrap_or_default();
            let own_kind = "captcontrolplanes.controlplane.cluster.x-k8s.io";
            assert!(last.contains(&format!("{own_kind} {place}")), "{last}");
            assert!(!last.contains(&format!("in {namespace}")), "{last}");
        }
        Ok(())
    });
}
