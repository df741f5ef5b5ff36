//! What is served: built-in resources, always, and those of the definitions that are established.

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

/// The table of namespaces, which other objects live in.
pub(crate) const NAMESPACES: &str = "namespaces";
/// The table of definitions, which other resources come from.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// A resource in one version, and how its objects are stored and shown.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) resource: Resource,
    /// All versions of a resource, and both views of an event, share one.
    pub(crate) table: TableName,
    /// Of the version that is stored, if that is another one: what is written has to fit it too.
    pub(crate) storage_schema: Option<Arc<Schema>>,
    /// How an object is shown by itself.
    pub(crate) head: Head,
    /// How it is shown in a list.
    item_head: Head,
    /// What is shown differs from what is stored by more than apiVersion and kind.
    converted: bool,
}

impl Served {
    pub(crate) fn new(resource: Resource, table: TableName, storage_schema: Option<Arc<Schema>>) -> Self {
        let head = Head::new(&resource.api_version(), &resource.kind);
        // Items of built-in lists carry no kind (kube-rs#946), those of custom ones do.
        let item_head = if resource.strategy.custom { head.clone() } else { Head::bare() };
        let converted = !resource.strategy.custom && builtin::is_view(&resource);
        Self { resource, table, storage_schema, head, item_head, converted }
    }

    pub(crate) fn strategy(&self) -> &Strategy {
        &self.resource.strategy
    }

    /// An object as this version shows it, decoded.
    pub(crate) fn decode(&self, object: &Object) -> Value {
        self.decode_at(object, object.revision)
    }

    /// The same, as of another revision.
    pub(crate) fn decode_at(&self, object: &Object, revision: u64) -> Value {
        self.shown(Value::Object(object.decode_at(&self.head, revision)))
    }

    /// What is stored is not what is shown.
    pub(crate) fn is_converted(&self) -> bool {
        self.converted
    }

    /// What this version shows, as it is stored.
    pub(crate) fn to_stored(&self, value: Value) -> Value {
        if self.converted { builtin::from_view(&self.resource, value) } else { value }
    }

    /// What is stored, as this version shows it.
    pub(crate) fn shown(&self, stored: Value) -> Value {
        if self.converted { builtin::to_view(&self.resource, stored) } else { stored }
    }

    /// Append an object's JSON as of `revision`.
    pub(crate) fn write(&self, out: &mut BytesMut, object: &Object, revision: u64) {
        self.write_with(out, &self.head, object, revision);
    }

    /// Append an object's JSON, as an item of a list.
    pub(crate) fn write_item(&self, out: &mut BytesMut, object: &Object) {
        self.write_with(out, &self.item_head, object, object.revision);
    }

    fn write_with(&self, out: &mut BytesMut, head: &Head, object: &Object, revision: u64) {
        if self.converted {
            out.put_slice(self.shown(Value::Object(object.decode_at(head, revision))).to_string().as_bytes());
        } else {
            object.write(out, head, revision);
        }
    }

    /// An object's JSON.
    pub(crate) fn json(&self, object: &Object) -> Bytes {
        let mut out = BytesMut::new();
        self.write(&mut out, object, object.revision);
        out.freeze()
    }
}

/// All that is served. Made anew when a definition comes or goes; a request sees one all the way through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    /// Built-ins first, in the order of their table.
    all: Vec<Arc<Served>>,
    /// By `group/version/plural`.
    by_path: HashMap<String, Arc<Served>>,
    /// Of each table the version that is stored, whether it is served or not: what controllers see objects by.
    stored: BTreeMap<TableName, Arc<Served>>,
}

impl Catalog {
    /// The built-ins.
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

    /// Serve a version of a resource.
    pub(crate) fn serve(&mut self, served: Arc<Served>) {
        let resource = &served.resource;
        let path = path(&resource.group, &resource.version, &resource.plural);
        self.all.push(served.clone());
        self.by_path.insert(path, served);
    }

    /// Its objects are stored in this version.
    pub(crate) fn store_as(&mut self, stored: Arc<Served>) {
        self.stored.insert(stored.table.clone(), stored);
    }

    /// Serve no version of a resource any longer.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        let stays = |served: &Served| &*served.resource.group != group || &*served.resource.plural != plural;
        self.all.retain(|served| stays(served));
        self.by_path.retain(|_, served| stays(served));
        self.stored.retain(|_, served| stays(served));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_path.get(&path(group, version, plural))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.all.iter()
    }

    /// How the objects of a table are stored.
    pub(crate) fn stored(&self, table: &str) -> Option<&Arc<Served>> {
        self.stored.get(table)
    }

    /// How those of all tables are, in the order of their names.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.stored.values()
    }

    /// A group of Kubernetes' own.
    pub(crate) fn has_built_in(&self, group: &str) -> bool {
        self.iter().any(|served| !served.strategy().custom && &*served.resource.group == group)
    }

    /// Any served version of a kind, for references that name one.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<Served>> {
        self.iter().find(|served| &*served.resource.group == group && &*served.resource.kind == kind)
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    [group, version, plural].join("/")
}

/// `widgets.example.com`, `configmaps`.
pub(crate) fn table_name(group: &str, plural: &str) -> TableName {
    crate::status::qualified(group, plural).into()
}
