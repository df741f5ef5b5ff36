//! CRD controller: serves custom resources once their names are accepted, and deletes their objects
//! before a CRD is removed.

use super::{ObservedChange, call, delete_all};
use crate::{
    catalog::{DEFINITIONS, Served, table_name},
    crd::{self, Definition},
    decode::DecodedBody,
    object::{Content, Object},
    patch::Patch,
    registry::{CLEANUP, Input, ResponseObject, Subresource, is_deleting, meta_mut, meta_text},
    server::Core,
    status::{Failure, Result, StrictErrors},
    store::Range,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

const GROUP: &str = "apiextensions.k8s.io";
/// Verbs that discovery reports for the resource of a CRD that is being deleted.
const TERMINATING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

#[derive(Default)]
pub(super) struct CrdController {
    /// CRDs to synchronize, by name.
    due: BTreeSet<String>,
    /// CRDs that are being deleted, by the table of their objects.
    terminating: HashMap<Arc<str>, String>,
    /// CRDs with names that other CRDs use.
    conflicted: BTreeSet<String>,
    /// Schema of the storage version, by table.
    schemas: HashMap<Arc<str>, Value>,
}

impl CrdController {
    pub(super) fn observe(&mut self, change: ObservedChange<'_>) {
        let Some(object) = change.object() else {
            return;
        };
        if change.table == DEFINITIONS {
            self.due.insert(object.key.name().into());
        } else if change.after.is_none()
            && let Some(name) = self.terminating.get(change.table)
        {
            self.due.insert(name.clone());
        }
    }

    /// Enqueues all CRDs whose resources are served, since a deletion could have been missed.
    pub(super) fn resync(&mut self, core: &Core) {
        let catalog = core.catalog();
        let custom = catalog
            .all_stored()
            .filter(|stored| stored.strategy().custom);
        self.due
            .extend(custom.map(|stored| stored.table.to_string()));
    }

    /// Synchronizes the CRDs that are due. Those that fail stay due.
    pub(super) fn process_due(&mut self, core: &Core) {
        let mut failed = BTreeSet::new();
        while let Some(name) = self.due.pop_first() {
            if self.sync(core, &name).is_err() {
                failed.insert(name);
            }
        }
        self.due = failed;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    fn sync(&mut self, core: &Core, name: &str) -> Result<()> {
        let catalog = core.catalog();
        let Some(definitions) = catalog.stored(DEFINITIONS) else {
            return Ok(());
        };
        let Some(object) = core.store.get(DEFINITIONS, name) else {
            return self.remove(core, name);
        };
        let object = definitions.decode(&object);
        // A stored CRD was valid when it was written.
        let Ok(definition) = Definition::parse(&object) else {
            return Ok(());
        };
        if is_deleting(&object) {
            return self.clean_up(core, definitions, name, &object, &definition);
        }
        let in_use = names_in_use(core, definitions, &object);
        let object = write_status(core, definitions, object.clone(), |status, now| {
            crd::names::accept_names(status, &object, &in_use, now);
        })?;
        if crd::status::names_accepted(&object) {
            self.conflicted.remove(name);
        } else {
            self.conflicted.insert(name.into());
            if !crd::status::is_established(&object) {
                return Ok(());
            }
        }
        // Serve the accepted names: the previous ones where the new ones are in use.
        let mut accepted = object.clone();
        accepted["spec"]["names"] = object["status"]["acceptedNames"].clone();
        if let Ok(definition) = Definition::parse(&accepted) {
            self.register(core, &object, &definition)?;
        }
        if crd::status::names_accepted(&object) {
            write_status(core, definitions, object, crd::status::establish)?;
        }
        // The CRD can have released a name that another one waits for.
        self.due.extend(
            self.conflicted
                .iter()
                .filter(|waiting| *waiting != name)
                .cloned(),
        );
        Ok(())
    }

    /// Serves the resource of a CRD. If its schema has changed, applies it to the stored objects.
    fn register(&mut self, core: &Core, object: &Value, definition: &Definition) -> Result<()> {
        register(core, definition, false);
        let (plural, group) = definition.names();
        let table = table_name(group, plural);
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let schema = versions
            .filter(|version| version["storage"] == true)
            .map(|version| &version["schema"])
            .next();
        let schema = schema.cloned().unwrap_or_default();
        if self
            .schemas
            .get(&table)
            .is_some_and(|before| *before != schema)
        {
            apply_schema(core, &table)?;
        }
        self.schemas.insert(table, schema);
        Ok(())
    }

    /// Removes the resource and the objects of a deleted CRD.
    fn remove(&mut self, core: &Core, name: &str) -> Result<()> {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        core.change_catalog(|catalog| catalog.remove(group, plural));
        let table = table_name(group, plural);
        core.store.drop_table(&table).map_err(Failure::internal)?;
        self.terminating.remove(&table);
        self.schemas.remove(&table);
        self.conflicted.remove(name);
        // Another CRD can be waiting for the released names.
        self.due.extend(self.conflicted.iter().cloned());
        Ok(())
    }

    /// Deletes all objects of the resource, then removes the finalizer of the CRD.
    fn clean_up(
        &mut self,
        core: &Core,
        definitions: &Served,
        name: &str,
        object: &Value,
        definition: &Definition,
    ) -> Result<()> {
        let has_finalizer = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| list.iter().any(|finalizer| finalizer == CLEANUP));
        if !has_finalizer {
            return Ok(());
        }
        register(core, definition, true);
        let object = write_status(core, definitions, object.clone(), crd::status::terminate)?;
        let spec = &object["spec"];
        let group = spec["group"].as_str().unwrap_or_default();
        let plural = spec["names"]["plural"].as_str().unwrap_or_default();
        let table = table_name(group, plural);
        self.terminating.insert(table.clone(), name.into());
        if !delete_all(core, &table, Range::default())? {
            return Ok(());
        }
        let finalizers = object["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten();
        let kept: Vec<_> = finalizers
            .filter(|finalizer| *finalizer != CLEANUP)
            .collect();
        let version = meta_text(&object, "resourceVersion");
        let patch = json!({"metadata": {"finalizers": kept, "resourceVersion": version}});
        let patch = Input::Patch(Patch::Merge(patch), StrictErrors::new());
        // Written as a status update, which is valid even if the CRD is not valid any more.
        call(core, definitions, "", Subresource::Status, |call| {
            call.update(name, &patch)
        })
        .map(drop)
    }
}

/// Updates the status of a CRD and returns the written CRD.
fn write_status(
    core: &Core,
    definitions: &Served,
    mut object: Value,
    change: impl FnOnce(&mut Value, &str),
) -> Result<Value> {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    change(&mut object["status"], &core.clock.timestamp());
    let name = meta_text(&object, "name").to_owned();
    let (answer, _) = call(core, definitions, "", Subresource::Status, |call| {
        call.update(&name, &Input::Replace(object))
    })?;
    Ok(match answer {
        ResponseObject::Stored(object) => definitions.decode(&object),
        ResponseObject::Value(object) => object,
    })
}

/// Prunes and defaults the stored objects of a table with its current schema. The real server does
/// this on every read.
fn apply_schema(core: &Core, table: &str) -> Result<()> {
    let catalog = core.catalog();
    let Some(stored) = catalog.stored(table) else {
        return Ok(());
    };
    let converted = |object: &Object| {
        let mut converted = stored.decode(object);
        stored.resource.schema.prune(&mut converted);
        stored.resource.schema.default(&mut converted);
        converted
            .as_object()
            .map(Content::encode)
            .filter(|content| content != object.content())
    };
    core.store
        .rewrite(table, converted)
        .map_err(Failure::internal)
}

/// Returns the accepted names of the other CRDs in the group.
fn names_in_use(core: &Core, definitions: &Served, object: &Value) -> crd::names::NamesInUse {
    let mut in_use = crd::names::NamesInUse::default();
    let Ok(scan) = core.store.scan(DEFINITIONS, Range::default(), None) else {
        return in_use;
    };
    for other in scan.objects {
        let other = definitions.decode(&other);
        if other["spec"]["group"] == object["spec"]["group"]
            && meta_text(&other, "name") != meta_text(object, "name")
        {
            in_use.add(&other["status"]["acceptedNames"]);
        }
    }
    in_use
}

/// Adds all versions of a CRD to the catalog.
fn register(core: &Core, definition: &Definition, terminating: bool) {
    let storage = definition.storage();
    let (plural, group) = definition.names();
    let table = table_name(group, plural);
    core.store.create_table(&table);
    core.change_catalog(|catalog| {
        catalog.remove(group, plural);
        for version in definition.versions() {
            let mut resource = definition.resource(version);
            if terminating {
                resource.verbs = TERMINATING_VERBS;
            }
            let other = storage.filter(|storage| storage.name != version.name);
            let storage_schema = other.map(|storage| storage.schema.clone());
            let served = Arc::new(Served::new(resource, table.clone(), storage_schema));
            if version.storage {
                catalog.store_as(served.clone());
            }
            if version.served {
                catalog.serve(served);
            }
        }
    });
}

/// Serves the CRDs that are already established when a server starts with stored data.
pub(crate) fn register_all(core: &Core) {
    let catalog = core.catalog();
    let Some(definitions) = catalog.stored(DEFINITIONS) else {
        return;
    };
    let Ok(scan) = core.store.scan(DEFINITIONS, Range::default(), None) else {
        return;
    };
    for object in &scan.objects {
        let object = definitions.decode(object);
        if crd::status::is_established(&object)
            && let Ok(definition) = Definition::parse(&object)
        {
            register(core, &definition, is_deleting(&object));
        }
    }
}

/// Creates or replaces a CRD and waits until its resource is served.
pub(crate) async fn install(core: &Core, definition: Value) -> Result<()> {
    let name = meta_text(&definition, "name").to_owned();
    let error = |cause: &str| Failure::conflict(GROUP, "customresourcedefinitions", &name, cause);
    let catalog = core.catalog();
    let definitions = catalog
        .stored(DEFINITIONS)
        .ok_or_else(Failure::no_resource)?;
    call(core, definitions, "", Subresource::None, |call| {
        let mut definition = call.accept(DecodedBody::from_value(definition))?;
        let Some(existing) = core.store.get(DEFINITIONS, &name) else {
            return call.create(definition).map(drop);
        };
        meta_mut(&mut definition).insert(
            "resourceVersion".into(),
            existing.revision.to_string().into(),
        );
        call.update(&name, &Input::Replace(definition)).map(drop)
    })?;
    // The last revision that controllers observe, since they do not observe all changes.
    let written = core.store.last_in_feed();
    core.activity
        .wait_until(|seen| {
            let Some(seen) = seen else {
                return Some(Err(error("the controllers have stopped")));
            };
            if seen < written {
                return None;
            }
            let Some(object) = core.store.get(DEFINITIONS, &name) else {
                return Some(Err(error("it has been deleted")));
            };
            let object = definitions.decode(&object);
            if let Some(conflict) = crd::status::name_conflict(&object) {
                return Some(Err(error(&format!("the name {conflict}"))));
            }
            crd::status::is_established(&object).then_some(Ok(()))
        })
        .await
}
