//! Definitions: their resources are served once their names are theirs, and cleaned up before they go.

use super::{Seen, call, delete_all};
use crate::{
    catalog::{DEFINITIONS, Served, table_name},
    crd::{self, Definition},
    decode::Body,
    object::{Content, Object},
    patch::Patch,
    registry::{Answer, CLEANUP, Input, Part, is_deleting, meta_mut, meta_text},
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
/// What is said to be left to do with the objects of a definition that is being deleted.
const TERMINATING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

#[derive(Default)]
pub(super) struct Definitions {
    /// Names of definitions to look at.
    due: BTreeSet<String>,
    /// Those being deleted, by the table of their objects.
    terminating: HashMap<Arc<str>, String>,
    /// Those whose names others have.
    conflicted: BTreeSet<String>,
    /// The schemas by which the objects of tables are stored.
    schemas: HashMap<Arc<str>, Value>,
}

impl Definitions {
    pub(super) fn see(&mut self, seen: Seen<'_>) {
        let Some(object) = seen.object() else { return };
        if seen.table == DEFINITIONS {
            self.due.insert(object.key.name().into());
        } else if seen.after.is_none()
            && let Some(name) = self.terminating.get(seen.table)
        {
            self.due.insert(name.clone());
        }
    }

    /// A definition may have gone unseen: what is served without one is to be removed.
    pub(super) fn look_at_everything(&mut self, core: &Core) {
        let catalog = core.catalog();
        let custom = catalog.all_stored().filter(|stored| stored.strategy().custom);
        self.due.extend(custom.map(|stored| stored.table.to_string()));
    }

    /// Look at what is due; what failed is due again.
    pub(super) fn work(&mut self, core: &Core) {
        let mut failed = BTreeSet::new();
        while let Some(name) = self.due.pop_first() {
            if self.sync(core, &name).is_err() {
                failed.insert(name);
            }
        }
        self.due = failed;
    }

    pub(super) fn is_done(&self) -> bool {
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
        // What is stored was valid when it was stored.
        let Ok(definition) = Definition::parse(&object) else { return Ok(()) };
        if is_deleting(&object) {
            return self.clean_up(core, definitions, name, &object, &definition);
        }
        let taken = taken(core, definitions, &object);
        let object = write_status(core, definitions, object.clone(), |status, now| {
            crd::names::settle(status, &object, &taken, now);
        })?;
        if crd::status::has_names(&object) {
            self.conflicted.remove(name);
        } else {
            self.conflicted.insert(name.into());
            if !crd::status::is_established(&object) {
                return Ok(());
            }
        }
        // Under the names that it was given: those it had before, where others are taken.
        let mut accepted = object.clone();
        accepted["spec"]["names"] = object["status"]["acceptedNames"].clone();
        if let Ok(definition) = Definition::parse(&accepted) {
            self.register(core, &object, &definition)?;
        }
        if crd::status::has_names(&object) {
            write_status(core, definitions, object, crd::status::establish)?;
        }
        // It may have given up a name that another one waits for.
        self.due.extend(self.conflicted.iter().filter(|waiting| *waiting != name).cloned());
        Ok(())
    }

    /// Serve a definition's resource; if its schema is another one now, its objects are fitted to that.
    fn register(&mut self, core: &Core, object: &Value, definition: &Definition) -> Result<()> {
        register(core, definition, false);
        let (plural, group) = definition.names();
        let table = table_name(group, plural);
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let schema = versions.filter(|version| version["storage"] == true).map(|version| &version["schema"]).next();
        let schema = schema.cloned().unwrap_or_default();
        if self.schemas.get(&table).is_some_and(|before| *before != schema) {
            fit_objects(core, &table)?;
        }
        self.schemas.insert(table, schema);
        Ok(())
    }

    /// The definition is gone, and with it all that is left of its resource.
    fn remove(&mut self, core: &Core, name: &str) -> Result<()> {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        core.change_catalog(|catalog| catalog.remove(group, plural));
        let table = table_name(group, plural);
        core.store.drop_table(&table).map_err(Failure::internal)?;
        self.terminating.remove(&table);
        self.schemas.remove(&table);
        self.conflicted.remove(name);
        // Its names may be what another one waits for.
        self.due.extend(self.conflicted.iter().cloned());
        Ok(())
    }

    /// Delete all objects; once they are gone, let the definition go.
    fn clean_up(
        &mut self,
        core: &Core,
        definitions: &Served,
        name: &str,
        object: &Value,
        definition: &Definition,
    ) -> Result<()> {
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|it| it == CLEANUP));
        if !held {
            return Ok(());
        }
        register(core, definition, true);
        let object = write_status(core, definitions, object.clone(), crd::status::terminate)?;
        let resource = &object["spec"];
        let (group, plural) = (resource["group"].as_str().unwrap_or_default(), &resource["names"]["plural"]);
        let table = table_name(group, plural.as_str().unwrap_or_default());
        self.terminating.insert(table.clone(), name.into());
        if !delete_all(core, &table, Range::default())? {
            return Ok(());
        }
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let kept: Vec<_> = finalizers.filter(|finalizer| *finalizer != CLEANUP).collect();
        let version = meta_text(&object, "resourceVersion");
        let patch = json!({"metadata": {"finalizers": kept, "resourceVersion": version}});
        let patch = Input::Patch(Patch::Merge(patch), StrictErrors::new());
        // As a change of status, which is valid even if the definition is not any longer.
        call(core, definitions, "", Part::Status, |call| call.update(name, &patch)).map(drop)
    }
}

/// Change a definition's status; the definition as it is then.
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
    let (answer, _) = call(core, definitions, "", Part::Status, |call| call.update(&name, &Input::Replace(object)))?;
    Ok(match answer {
        Answer::Stored(object) => definitions.decode(&object),
        Answer::Value(object) => object,
    })
}

/// Drop from the objects of a table what its schema does not know any longer, and fill in what it has defaults for now. The real
/// server does that whenever it reads one; here it is done once.
fn fit_objects(core: &Core, table: &str) -> Result<()> {
    let catalog = core.catalog();
    let Some(stored) = catalog.stored(table) else { return Ok(()) };
    let fitted = |object: &Object| {
        let mut fitted = stored.decode(object);
        stored.resource.schema.prune(&mut fitted);
        stored.resource.schema.default(&mut fitted);
        fitted.as_object().map(Content::encode).filter(|content| content != object.content())
    };
    core.store.rewrite(table, fitted).map_err(Failure::internal)
}

/// The names that other definitions of a definition's group have been given.
fn taken(core: &Core, definitions: &Served, object: &Value) -> crd::names::Taken {
    let mut taken = crd::names::Taken::default();
    let Ok(scan) = core.store.scan(DEFINITIONS, Range::default(), None) else { return taken };
    for other in scan.objects {
        let other = definitions.decode(&other);
        if other["spec"]["group"] == object["spec"]["group"] && meta_text(&other, "name") != meta_text(object, "name") {
            taken.add(&other["status"]["acceptedNames"]);
        }
    }
    taken
}

/// Serve all versions of a definition.
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

/// Serve what is established already, at the start of a server that has a past.
pub(crate) fn register_all(core: &Core) {
    let catalog = core.catalog();
    let Some(definitions) = catalog.stored(DEFINITIONS) else { return };
    let Ok(scan) = core.store.scan(DEFINITIONS, Range::default(), None) else { return };
    for object in &scan.objects {
        let object = definitions.decode(object);
        if crd::status::is_established(&object)
            && let Ok(definition) = Definition::parse(&object)
        {
            register(core, &definition, is_deleting(&object));
        }
    }
}

/// Create or replace a definition, and wait until its resource is served so.
pub(crate) async fn install(core: &Core, definition: Value) -> Result<()> {
    let name = meta_text(&definition, "name").to_owned();
    let failed = |cause: &str| Failure::conflict(GROUP, "customresourcedefinitions", &name, cause);
    let catalog = core.catalog();
    let definitions = catalog.stored(DEFINITIONS).ok_or_else(Failure::no_resource)?;
    call(core, definitions, "", Part::Whole, |call| {
        let mut definition = call.accept(Body::of(definition))?;
        let Some(existing) = core.store.get(DEFINITIONS, &name) else { return call.create(definition).map(drop) };
        meta_mut(&mut definition).insert("resourceVersion".into(), existing.revision.to_string().into());
        call.update(&name, &Input::Replace(definition)).map(drop)
    })?;
    // Not the revision: of other kinds' changes the controllers are not told.
    let written = core.store.last_notable();
    core.activity
        .until(|seen| {
            let Some(seen) = seen else { return Some(Err(failed("the controllers have ended"))) };
            if seen < written {
                return None;
            }
            let Some(object) = core.store.get(DEFINITIONS, &name) else { return Some(Err(failed("it was deleted"))) };
            let object = definitions.decode(&object);
            if let Some(taken) = crd::status::names_refused(&object) {
                return Some(Err(failed(&format!("the name {taken}"))));
            }
            crd::status::is_established(&object).then_some(Ok(()))
        })
        .await
}
