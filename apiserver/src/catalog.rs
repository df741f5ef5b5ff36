//! Registry of the served resources: built-in ones and those of established CRDs.

use crate::{
    builtin,
    object::{Head, Object},
    resource::{Resource, Strategy},
    schema::Schema,
    store::TableName,
};
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Name of the table of namespaces.
pub(crate) const NAMESPACES: &str = "namespaces";
/// Name of the table of CRDs.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// A resource in one version, with its storage table and JSON representation.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) resource: Resource,
    /// Table of the stored objects. All versions of a resource share it, and both groups of events
    /// do.
    pub(crate) table: TableName,
    /// Schema of the storage version, if this is another version. Written objects must satisfy
    /// both.
    pub(crate) storage_schema: Option<Arc<Schema>>,
    /// JSON prefix of a single object.
    pub(crate) head: Head,
    /// JSON prefix of an item of a list.
    item_head: Head,
    /// The served object differs from the stored one by more than apiVersion and kind.
    converted: bool,
}

impl Served {
    pub(crate) fn new(
        resource: Resource,
        table: TableName,
        storage_schema: Option<Arc<Schema>>,
    ) -> Self {
        let head = Head::new(&resource.api_version(), &resource.kind);
        // Items of built-in lists have no kind (kube-rs#946). Items of custom resource lists have
        // one.
        let item_head = if resource.strategy.custom {
            head.clone()
        } else {
            Head::bare()
        };
        let converted = !resource.strategy.custom && builtin::is_view(&resource);
        Self {
            resource,
            table,
            storage_schema,
            head,
            item_head,
            converted,
        }
    }

    pub(crate) fn strategy(&self) -> &Strategy {
        &self.resource.strategy
    }

    /// Decodes an object in this version.
    pub(crate) fn decode(&self, object: &Object) -> Value {
        self.decode_at(object, object.revision)
    }

    /// Decodes an object in this version, with `revision` as its resource version.
    pub(crate) fn decode_at(&self, object: &Object, revision: u64) -> Value {
        self.to_served(Value::Object(object.decode_at(&self.head, revision)))
    }

    pub(crate) fn is_converted(&self) -> bool {
        self.converted
    }

    /// Converts an object of this version to its stored form.
    pub(crate) fn to_stored(&self, value: Value) -> Value {
        if self.converted {
            builtin::from_view(&self.resource, value)
        } else {
            value
        }
    }

    /// Converts a stored object to this version.
    pub(crate) fn to_served(&self, stored: Value) -> Value {
        if self.converted {
            builtin::to_view(&self.resource, stored)
        } else {
            stored
        }
    }

    /// Appends an object's JSON, with `revision` as its resource version.
    pub(crate) fn write(&self, out: &mut BytesMut, object: &Object, revision: u64) {
        self.write_with(out, &self.head, object, revision);
    }

    /// Appends an object's JSON as an item of a list.
    pub(crate) fn write_item(&self, out: &mut BytesMut, object: &Object) {
        self.write_with(out, &self.item_head, object, object.revision);
    }

    fn write_with(&self, out: &mut BytesMut, head: &Head, object: &Object, revision: u64) {
        if self.converted {
            out.put_slice(
                self.to_served(Value::Object(object.decode_at(head, revision)))
                    .to_string()
                    .as_bytes(),
            );
        } else {
            object.write(out, head, revision);
        }
    }

    /// Returns an object's JSON.
    pub(crate) fn json(&self, object: &Object) -> Bytes {
        let mut out = BytesMut::new();
        self.write(&mut out, object, object.revision);
        out.freeze()
    }
}

/// All served resources. Replaced when a CRD changes; a request uses one catalog throughout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    /// Built-in resources first, in the order of their table.
    all: Vec<Arc<Served>>,
    /// Served versions by `group/version/plural`.
    by_path: HashMap<String, Arc<Served>>,
    /// Storage version of each table, even if it is not served. Controllers read objects with it.
    stored: BTreeMap<TableName, Arc<Served>>,
}

impl Catalog {
    /// Returns the catalog of the built-in resources.
    pub(crate) fn builtin() -> Self {
        let mut catalog = Self::default();
        for resource in builtin::resources() {
            let (group, plural) = builtin::storage_of(&resource.group, &resource.plural);
            let table = table_name(group, plural);
            let served = Arc::new(Served::new(resource, table, None));
            if !served.converted {
                catalog.store_as(served.clone());
            }
            catalog.serve(served);
        }
        catalog
    }

    /// Adds a served version of a resource.
    pub(crate) fn serve(&mut self, served: Arc<Served>) {
        let resource = &served.resource;
        let path = path(&resource.group, &resource.version, &resource.plural);
        self.all.push(served.clone());
        self.by_path.insert(path, served);
    }

    /// Sets the storage version of a table.
    pub(crate) fn store_as(&mut self, stored: Arc<Served>) {
        self.stored.insert(stored.table.clone(), stored);
    }

    /// Removes all versions of a resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        let is_other = |served: &Served| {
            &*served.resource.group != group || &*served.resource.plural != plural
        };
        self.all.retain(|served| is_other(served));
        self.by_path.retain(|_, served| is_other(served));
        self.stored.retain(|_, served| is_other(served));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_path.get(&path(group, version, plural))
    }

    /// Reports whether the version of `served` is still served, or its whole resource is removed.
    ///
    /// The table of a removed resource is dropped, which ends watches.
    pub(crate) fn serves(&self, served: &Served) -> bool {
        let resource = &served.resource;
        self.find(&resource.group, &resource.version, &resource.plural)
            .is_some()
            || !self.stored.contains_key(&served.table)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.all.iter()
    }

    /// Returns the storage version of a table.
    pub(crate) fn stored(&self, table: &str) -> Option<&Arc<Served>> {
        self.stored.get(table)
    }

    /// Returns the storage versions of all tables, sorted by table name.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.stored.values()
    }

    /// Reports whether `group` has built-in resources.
    pub(crate) fn has_builtin(&self, group: &str) -> bool {
        self.iter()
            .any(|served| !served.strategy().custom && &*served.resource.group == group)
    }

    /// Returns any served version of a kind. Used for owner references.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<Served>> {
        self.iter()
            .find(|served| &*served.resource.group == group && &*served.resource.kind == kind)
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    [group, version, plural].join("/")
}

/// Returns the table name of a resource, such as `widgets.example.com` or `configmaps`.
pub(crate) fn table_name(group: &str, plural: &str) -> TableName {
    crate::status::qualified(group, plural).into()
}
