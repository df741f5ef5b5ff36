//! Installs CRDs and waits until they are served.
//!
//! A CRD is any value that serializes to one.

use super::Error;
use kube_client::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde::Serialize;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::time::sleep;

const KIND: &str = "CustomResourceDefinition";
/// Time for a CRD to be served, or to be deleted with all its objects.
const PATIENCE: Duration = Duration::from_secs(30);
const ASK: Duration = Duration::from_millis(20);

/// Serializes CRDs to JSON values.
pub(super) fn values(definitions: impl IntoIterator<Item: Serialize>) -> Result<Vec<Value>, Error> {
    let value = |definition| {
        serde_json::to_value(definition).map_err(|error| Error::definition("", error.to_string()))
    };
    definitions.into_iter().map(value).collect()
}

/// Reads the CRDs in a file, or in the files of a directory by name.
///
/// Files are YAML or JSON with any number of documents. Objects of other kinds are skipped, so that
/// the directory may be one that is used for deployment.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// std::fs::write(path.join("widgets.yaml"), "\
/// kind: Namespace
/// ---
/// kind: CustomResourceDefinition
/// metadata: {name: widgets.example.com}
/// ")?;
/// let definitions = steersman::testing::read_definitions(path)?;
/// assert_eq!(definitions[0]["metadata"]["name"], "widgets.example.com");
/// # assert_eq!(definitions.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_definitions(path: impl AsRef<Path>) -> Result<Vec<Value>, Error> {
    let path = path.as_ref();
    let reading = || Error::io(format!("read definitions from {}", path.display()));
    let mut files: Vec<PathBuf> = Vec::new();
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(reading())? {
            files.push(entry.map_err(reading())?.path());
        }
        files.retain(|file| {
            file.extension()
                .is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
        });
        files.sort();
    } else {
        files.push(path.into());
    }
    let mut definitions = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(&file).map_err(Error::io(format!("read {}", file.display())))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| {
            Error::definition(
                file.display().to_string(),
                format!("is not valid YAML: {error}"),
            )
        })?;
        definitions.extend(
            documents
                .into_iter()
                .filter(|document| document["kind"] == KIND),
        );
    }
    Ok(definitions)
}

/// Creates or updates CRDs, and waits until all are served.
pub(super) async fn install(client: Client, definitions: Vec<Value>) -> Result<(), Error> {
    let api = api(client.clone());
    for definition in &definitions {
        store(&api, definition).await?;
    }
    let since = Instant::now();
    for definition in &definitions {
        until_served(&client, &api, definition, since).await?;
    }
    Ok(())
}

/// Deletes CRDs, and waits until they and their objects are gone.
pub(super) async fn uninstall(client: Client, definitions: Vec<Value>) -> Result<(), Error> {
    let api = api(client);
    for definition in &definitions {
        let name = name(definition)?;
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .or_else(unless_code(404))
            .map_err(Error::request(format!("delete the definition {name}")))?;
    }
    let since = Instant::now();
    for definition in &definitions {
        let name = name(definition)?;
        let read = || Error::request(format!("read the definition {name}"));
        while api.get_opt(name).await.map_err(read())?.is_some() {
            if since.elapsed() >= PATIENCE {
                return Err(Error::definition(
                    name,
                    "still exists; check for objects of its kind with a finalizer",
                ));
            }
            sleep(ASK).await;
        }
    }
    Ok(())
}

fn api(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", KIND);
    Api::all_with(
        client,
        &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"),
    )
}

async fn store(api: &Api<DynamicObject>, definition: &Value) -> Result<(), Error> {
    let name = name(definition)?;
    let object: Result<DynamicObject, _> = serde_json::from_value(definition.clone());
    let mut object = object
        .map_err(|error| Error::definition(name, format!("is not a valid object: {error}")))?;
    object.metadata.resource_version = None;
    let options = PostParams::default();
    loop {
        match api.create(&options, &object).await.map(drop) {
            Err(error) if has_code(&error, 409) => {}
            other => return other.map_err(Error::request(format!("create the definition {name}"))),
        }
        let there = api
            .get_opt(name)
            .await
            .map_err(Error::request(format!("read the definition {name}")))?;
        // Deleted meanwhile: create it.
        let Some(there) = there else { continue };
        object.metadata.resource_version = there.metadata.resource_version;
        match api.replace(name, &options, &object).await.map(drop) {
            Err(error) if has_code(&error, 409) || has_code(&error, 404) => {
                object.metadata.resource_version = None;
            }
            other => return other.map_err(Error::request(format!("update the definition {name}"))),
        }
    }
}

async fn until_served(
    client: &Client,
    api: &Api<DynamicObject>,
    definition: &Value,
    since: Instant,
) -> Result<(), Error> {
    let name = name(definition)?;
    loop {
        let there = api
            .get(name)
            .await
            .map_err(Error::request(format!("read the definition {name}")))?;
        let waiting_for = match established(&there.data) {
            Ok(()) => match unserved(client, definition).await {
                None => return Ok(()),
                Some(version) => format!("is not in the discovery of version {version}"),
            },
            Err(why) => format!("is not established ({why})"),
        };
        if since.elapsed() >= PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(Error::definition(
                name,
                format!("is not served after {seconds} s: it {waiting_for}"),
            ));
        }
        sleep(ASK).await;
    }
}

/// Returns an error with the conditions unless the CRD is established.
fn established(definition: &Value) -> Result<(), String> {
    let conditions = definition["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let find = |kind: &str| {
        conditions
            .iter()
            .find(|condition| condition["type"] == kind)
    };
    if find("Established").is_some_and(|condition| condition["status"] == "True") {
        return Ok(());
    }
    // A conflict of names is the reason why the CRD is not established.
    let rejected = find("NamesAccepted")
        .filter(|condition| condition["status"] == "False")
        .or(find("Established"));
    let message = rejected.and_then(|condition| condition["message"].as_str());
    Err(message.unwrap_or("it has no such condition yet").into())
}

/// Returns a version of the CRD that is missing in discovery.
async fn unserved(client: &Client, definition: &Value) -> Option<String> {
    let spec = &definition["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    for version in spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
    {
        let version = version["name"].as_str().unwrap_or_default();
        let Ok(request) = http::Request::get(format!("/apis/{group}/{version}")).body(Vec::new())
        else {
            return Some(version.into());
        };
        let found: Value = client.request(request).await.unwrap_or_default();
        let mut resources = found["resources"].as_array().into_iter().flatten();
        if !resources.any(|resource| resource["name"] == spec["names"]["plural"]) {
            return Some(version.into());
        }
    }
    None
}

fn name(definition: &Value) -> Result<&str, Error> {
    match definition["metadata"]["name"].as_str() {
        Some(name) if definition["kind"] == KIND => Ok(name),
        _ => Err(Error::definition(
            format!("{:.60}", definition.to_string()),
            "is not valid; set `kind: CustomResourceDefinition` and a `metadata.name`",
        )),
    }
}

fn has_code(error: &kube_client::Error, code: u16) -> bool {
    matches!(error, kube_client::Error::Api(status) if status.code == code)
}

fn unless_code(code: u16) -> impl FnOnce(kube_client::Error) -> Result<(), kube_client::Error> {
    move |error| {
        if has_code(&error, code) {
            Ok(())
        } else {
            Err(error)
        }
    }
}
