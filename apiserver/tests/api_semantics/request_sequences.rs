//! Random sequences of requests by one client, compared with a model: status codes, revisions and
//! one event per change.

use crate::support::*;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One request for one of a few objects.
#[derive(Clone, Debug)]
struct Step {
    name: usize,
    verb: Verb,
    value: u8,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Create,
    Put,
    PutUnversioned,
    PutStale,
    PutOtherUid,
    Merge,
    MergeStale,
    JsonPatch,
    Delete,
    DeleteOtherUid,
    DeleteStale,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Verb::*;
    let verb = prop::sample::select(vec![
        Create,
        Create,
        Put,
        PutUnversioned,
        PutStale,
        PutOtherUid,
        Merge,
        Merge,
        MergeStale,
        JsonPatch,
        Delete,
        DeleteOtherUid,
        DeleteStale,
    ]);
    vec(
        (0..3_usize, verb, 0..3_u8).prop_map(|(name, verb, value)| Step { name, verb, value }),
        1..60,
    )
}

/// A kind and the string field that requests change.
struct Kind {
    path: &'static str,
    body: fn(&str) -> Value,
    field: [&'static str; 2],
    texts: [&'static str; 3],
    put_without_version: bool,
}

const KINDS: [Kind; 2] = [
    Kind {
        path: CONFIG_MAPS,
        body: config_map,
        field: ["data", "k"],
        texts: ["v", "w", "x"],
        put_without_version: true,
    },
    Kind {
        path: WIDGETS,
        body: widget,
        field: ["spec", "color"],
        texts: ["red", "green", "blue"],
        put_without_version: false,
    },
];

/// Expected objects and events.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, Value>,
    events: Vec<(String, Value)>,
}

impl Kind {
    fn with(&self, object: &Value, text: &str) -> Value {
        let mut object = object.clone();
        object[self.field[0]][self.field[1]] = text.into();
        object
    }

    /// Sends a request. Also returns the expected status code.
    async fn send(&self, server: &Server, step: &Step, known: Option<&Value>) -> (Reply, u16) {
        let name = format!("o{}", step.name);
        let path = format!("{}/{name}", self.path);
        let text = self.texts[usize::from(step.value)];
        let if_exists = |code: u16| if known.is_some() { code } else { 404 };
        let full = self.with(known.unwrap_or(&(self.body)(&name)), text);
        let versioned = |rv: Option<&str>, uid: Option<&str>| {
            let mut body = full.clone();
            for (field, value) in [("resourceVersion", rv), ("uid", uid)] {
                body["metadata"][field] =
                    value.map_or_else(|| body["metadata"][field].clone(), Into::into);
            }
            body
        };
        match step.verb {
            Verb::Create => {
                let created = server
                    .post(self.path, self.with(&(self.body)(&name), text))
                    .await;
                (created, if known.is_some() { 409 } else { 201 })
            }
            Verb::Put => (server.put(&path, full).await, if_exists(200)),
            Verb::PutUnversioned => {
                let code = if self.put_without_version { 200 } else { 422 };
                (
                    server.put(&path, versioned(Some(""), None)).await,
                    if_exists(code),
                )
            }
            Verb::PutStale => (
                server.put(&path, versioned(Some("1"), None)).await,
                if_exists(409),
            ),
            Verb::PutOtherUid => (
                server.put(&path, versioned(None, Some("other"))).await,
                if_exists(409),
            ),
            Verb::Merge => (
                server
                    .merge(&path, json!({self.field[0]: {self.field[1]: text}}))
                    .await,
                if_exists(200),
            ),
            Verb::MergeStale => (
                server
                    .merge(&path, json!({"metadata": {"resourceVersion": "1"}}))
                    .await,
                if_exists(409),
            ),
            Verb::JsonPatch => {
                let field = format!("/{}", self.field.join("/"));
                let patch = json!([{"op": "replace", "path": field, "value": text}]);
                (server.json_patch(&path, patch).await, if_exists(200))
            }
            Verb::Delete => (server.delete(&path).await, if_exists(200)),
            Verb::DeleteOtherUid => (
                server
                    .delete_with(&path, json!({"preconditions": {"uid": "other"}}))
                    .await,
                if_exists(409),
            ),
            Verb::DeleteStale => (
                server
                    .delete_with(&path, json!({"preconditions": {"resourceVersion": "1"}}))
                    .await,
                if_exists(409),
            ),
        }
    }

    /// Checks a response and applies it to the model.
    fn apply(&self, model: &mut Model, step: &Step, reply: &Reply, (before, after): (u64, u64)) {
        let name = format!("o{}", step.name);
        let known = model.objects.get(&name).cloned();
        let text = self.texts[usize::from(step.value)];
        let expected = match (&known, reply.code) {
            (_, 400..) => return assert_eq!(before, after, "a rejected request writes nothing"),
            (Some(known), _) if matches!(step.verb, Verb::Delete) => {
                assert_eq!(after, before + 1);
                model.objects.remove(&name);
                let mut last = known.clone();
                last["metadata"]["resourceVersion"] = after.to_string().into();
                return model.events.push(("DELETED".into(), last));
            }
            (Some(known), _) if known[self.field[0]][self.field[1]] == text => {
                assert_eq!(
                    (before, &reply.json),
                    (after, known),
                    "a request without changes writes nothing"
                );
                return;
            }
            (Some(known), _) => self.with(known, text),
            (None, _) => self.with(&(self.body)(&name), text),
        };
        assert_eq!(reply.rv(), after);
        assert_eq!(after, before + 1);
        assert_eq!(
            reply.json[self.field[0]][self.field[1]],
            expected[self.field[0]][self.field[1]]
        );
        if let Some(known) = &known {
            assert_eq!(reply.json["metadata"]["uid"], known["metadata"]["uid"]);
        }
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        model.events.push((kind.into(), reply.json.clone()));
        model.objects.insert(name, reply.json.clone());
    }
}

async fn check_sequence(kind: &Kind, steps: Vec<Step>) {
    let server = Server::with_widgets().await;
    let mut model = Model::default();
    let from = server.server.revision();
    for step in &steps {
        let before = server.server.revision();
        let known = model.objects.get(&format!("o{}", step.name)).cloned();
        let (reply, code) = kind.send(&server, step, known.as_ref()).await;
        assert_eq!(reply.code, code, "{step:?}: {}", reply.text);
        kind.apply(&mut model, step, &reply, (before, server.server.revision()));
    }
    let list = server.get(kind.path).await.expect(200);
    assert_eq!(list.names(), model.objects.keys().collect::<Vec<_>>());
    for (name, object) in &model.objects {
        assert_eq!(
            &server
                .get(&format!("{}/{name}", kind.path))
                .await
                .expect(200)
                .json,
            object
        );
    }
    let mut watch = server
        .watch(&format!("{}?watch=1&resourceVersion={from}", kind.path))
        .await;
    assert_eq!(watch.take(model.events.len()).await, model.events);
}

steersman_testkit::properties! {

    cases = 40;

    #[test]
    fn random_requests_agree_with_the_model(steps in steps(), kind in 0..2_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(check_sequence(&KINDS[kind], steps));
    }
}
