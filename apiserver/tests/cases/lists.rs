//! Lists: one state of the store, in order, as much of it as was asked for.

use crate::support::*;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::time::Instant;

const ALL: &str = "/api/v1/configmaps";

async fn maps(server: &Server, names: &[&str]) {
    for name in names {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
}

async fn labelled(server: &Server, name: &str, labels: Value) {
    let mut object = config_map(name);
    object["metadata"]["labels"] = labels;
    server.post(CONFIG_MAPS, object).await.expect(201);
}

async fn list(server: &Server, query: &str) -> Reply {
    server.get(&format!("{CONFIG_MAPS}?{query}")).await
}

fn token(reply: &Reply) -> String {
    reply.json["metadata"]["continue"].as_str().expect("there is more").into()
}

/// Case 17.
#[tokio::test]
async fn what_is_forgotten_is_gone_for_lists_but_not_for_streaming_ones() {
    let server = Server::start();
    maps(&server, &["a", "b", "c", "d"]).await;
    let first = list(&server, "limit=2").await.expect(200);
    server.delete(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    maps(&server, &["e"]).await;
    server.server.compact();

    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}&resourceVersion={}", first.rv())).await;
    let kinds: Vec<_> = watch.take(5).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["ADDED", "ADDED", "ADDED", "ADDED", "BOOKMARK"]);

    let refused =
        list(&server, &format!("resourceVersionMatch=Exact&resourceVersion={}", first.rv())).await.expect(410);
    assert_eq!((refused.reason(), refused.json["metadata"].get("continue")), ("Expired", None));

    let refused = list(&server, &format!("limit=2&continue={}", token(&first))).await.expect(410);
    assert_eq!(refused.reason(), "Expired");
    let fresh = URL_SAFE_NO_PAD.decode(token(&refused)).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&fresh).unwrap()["rv"], -1);
    let rest = list(&server, &format!("limit=1&continue={}", token(&refused))).await.expect(200);
    assert_eq!((rest.names(), rest.rv()), (vec!["d"], server.server.revision()));
    assert_eq!(list(&server, &format!("continue={}", token(&rest))).await.expect(200).names(), ["e"]);
}

/// Case 17, for all namespaces at once.
#[tokio::test]
async fn a_page_of_all_namespaces_that_expired_goes_on_too() {
    let server = Server::start();
    maps(&server, &["a", "b"]).await;
    server.post("/api/v1/namespaces/kube-system/configmaps", config_map("c")).await.expect(201);
    let first = server.get(&format!("{ALL}?limit=1")).await.expect(200);
    server.merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"k": "w"}})).await.expect(200);
    server.server.compact();
    let refused = server.get(&format!("{ALL}?continue={}", token(&first))).await.expect(410);
    assert_eq!(server.get(&format!("{ALL}?continue={}", token(&refused))).await.expect(200).names(), ["b", "c"]);
}

/// Case 18.
#[tokio::test(start_paused = true)]
async fn who_asks_for_the_future_waits_and_is_refused() {
    let server = Server::start();
    maps(&server, &["a"]).await;
    let now = server.server.revision();
    let future = now + 1000;
    for path in [
        format!("{CONFIG_MAPS}?resourceVersion={future}"),
        format!("{CONFIG_MAPS}?resourceVersion={future}&resourceVersionMatch=NotOlderThan"),
        format!("{CONFIG_MAPS}/a?resourceVersion={future}"),
    ] {
        let asked = Instant::now();
        let refused = server.get(&path).await.expect(504);
        assert_eq!(asked.elapsed().as_secs(), 3, "{path}");
        assert_eq!(refused.reason(), "Timeout");
        assert_eq!(refused.message(), format!("Timeout: Too large resource version: {future}, current: {now}"));
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        assert_eq!(refused.json["details"], json!({"causes": [cause], "retryAfterSeconds": 1}));
        assert_eq!(refused.headers["retry-after"], "1");
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_the_near_future_gets_it() {
    let server = Server::start();
    let path = format!("{CONFIG_MAPS}?resourceVersion={}", server.server.revision() + 1);
    let (list, ()) = tokio::join!(server.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        maps(&server, &["a"]).await;
    });
    assert_eq!(list.expect(200).names(), ["a"]);
}

/// Case 19.
#[tokio::test]
async fn pages_are_of_one_state() {
    let server = Server::start();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    maps(&server, &names).await;
    let mut page = list(&server, "limit=2").await.expect(200);
    let revision = server.server.revision();
    let mut pages = vec![(page.names().join(" "), page.rv(), page.json["metadata"]["remainingItemCount"].clone())];
    server.delete(&format!("{CONFIG_MAPS}/d")).await.expect(200);
    maps(&server, &["cc"]).await;
    server.merge(&format!("{CONFIG_MAPS}/f"), json!({"data": {"k": "later"}})).await.expect(200);
    while let Some(token) = page.json["metadata"]["continue"].as_str() {
        page = list(&server, &format!("limit=2&continue={token}")).await.expect(200);
        assert!(page.json["items"].as_array().unwrap().iter().all(|item| item["data"]["k"] == "v"));
        pages.push((page.names().join(" "), page.rv(), page.json["metadata"]["remainingItemCount"].clone()));
    }
    let expected = [("a b", json!(6)), ("c d", json!(4)), ("e f", json!(2)), ("g h", Value::Null)];
    assert_eq!(pages, expected.map(|(names, remaining)| (names.to_owned(), revision, remaining)));
    assert_eq!(list(&server, "").await.names(), ["a", "b", "c", "cc", "e", "f", "g", "h"]);
}

/// Case 19.
#[tokio::test]
async fn how_many_remain_is_not_told_of_a_selection() {
    let server = Server::start();
    for name in ["a", "b", "c", "d", "e", "f"] {
        labelled(&server, name, json!({"odd": (name > "c").to_string()})).await;
    }
    for query in ["labelSelector=odd", "labelSelector=odd%3Dfalse", "fieldSelector=metadata.name!%3Dc"] {
        let page = list(&server, &format!("{query}&limit=2")).await.expect(200);
        assert_eq!((page.names(), page.json["metadata"].get("remainingItemCount")), (vec!["a", "b"], None), "{query}");
        let all = list(&server, query).await.expect(200);
        let rest = list(&server, &format!("{query}&continue={}", token(&page))).await.expect(200);
        assert_eq!(rest.names(), all.names()[2..]);
        assert_eq!(all.json["metadata"].as_object().unwrap().keys().collect::<Vec<_>>(), ["resourceVersion"]);
    }
}

#[tokio::test]
async fn a_continue_token_is_what_the_real_server_gives() {
    let server = Server::start();
    maps(&server, &["a", "b"]).await;
    for (path, start) in [(CONFIG_MAPS, "a\0"), (ALL, "default/a\0")] {
        let page = server.get(&format!("{path}?limit=1")).await.expect(200);
        let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token(&page)).unwrap()).unwrap();
        assert_eq!(decoded, json!({"v": "meta.k8s.io/v1", "rv": page.rv(), "start": start}));
    }
}

/// Case 20.
#[tokio::test]
async fn a_limit_does_not_hold_for_any_state() {
    let server = Server::start();
    maps(&server, &["a", "b", "c"]).await;
    let all = list(&server, "limit=2&resourceVersion=0").await.expect(200);
    assert_eq!(all.names(), ["a", "b", "c"]);
    assert_eq!(all.json["metadata"].as_object().unwrap().keys().collect::<Vec<_>>(), ["resourceVersion"]);
    let all = list(&server, "limit=2&resourceVersion=0&resourceVersionMatch=NotOlderThan").await.expect(200);
    assert_eq!(all.names(), ["a", "b", "c"]);
    assert_eq!(list(&server, "limit=0").await.expect(200).names(), ["a", "b", "c"]);
}

/// Case 20.
#[tokio::test]
async fn a_page_has_no_other_revision_than_its_own() {
    let server = Server::start();
    maps(&server, &["a", "b", "c"]).await;
    let page = list(&server, "limit=1").await.expect(200);
    let next = token(&page);
    let refused = list(&server, &format!("continue={next}&resourceVersion={}", page.rv())).await.expect(400);
    assert_eq!(refused.reason(), "BadRequest");
    assert_eq!(refused.message(), "specifying resource version is not allowed when using continue");
    let query = format!("continue={next}&resourceVersion={}&resourceVersionMatch=Exact", page.rv());
    assert_eq!(list(&server, &query).await.expect(422).cause_fields(), ["resourceVersionMatch"]);
    for garbage in ["garbage", "!", "e30", &next[1..]] {
        assert_eq!(list(&server, &format!("continue={garbage}")).await.expect(400).reason(), "BadRequest");
    }
    assert_eq!(list(&server, "limit=abc").await.expect(400).reason(), "BadRequest");
    list(&server, "nobody=knows&this=").await.expect(200);
}

#[tokio::test]
async fn a_revision_can_be_asked_for_exactly() {
    let server = Server::start();
    maps(&server, &["a", "b"]).await;
    let then = list(&server, "").await;
    server.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    server.merge(&format!("{CONFIG_MAPS}/b"), json!({"data": {"k": "w"}})).await.expect(200);
    maps(&server, &["c"]).await;
    let exact = list(&server, &format!("resourceVersionMatch=Exact&resourceVersion={}", then.rv())).await.expect(200);
    assert_eq!(exact.json, then.json);
    let page = list(&server, &format!("limit=1&resourceVersionMatch=Exact&resourceVersion={}", then.rv())).await;
    assert_eq!((page.names(), page.rv()), (vec!["a"], then.rv()));
    let page = list(&server, &format!("limit=1&continue={}", token(&page))).await.expect(200);
    assert_eq!((page.names(), page.rv()), (vec!["b"], then.rv()));
    for newer in ["resourceVersionMatch=NotOlderThan&", ""] {
        let list = list(&server, &format!("{newer}resourceVersion={}", then.rv())).await.expect(200);
        assert_eq!((list.names(), list.rv()), (vec!["b", "c"], server.server.revision()));
    }
    // With a limit it has always been meant exactly.
    let page = list(&server, &format!("limit=1&resourceVersion={}", then.rv())).await.expect(200);
    assert_eq!((page.names(), page.rv()), (vec!["a"], then.rv()));
    // An old revision of one object is not to be had: what is newer is given.
    let got = server.get(&format!("{CONFIG_MAPS}/b?resourceVersion={}", then.rv())).await.expect(200);
    assert_eq!(got.json["data"]["k"], "w");
}

#[tokio::test]
async fn a_match_needs_a_revision_to_match() {
    let server = Server::start();
    for (query, reason) in [
        ("resourceVersionMatch=Exact", "FieldValueForbidden"),
        ("resourceVersionMatch=NotOlderThan", "FieldValueForbidden"),
        ("resourceVersionMatch=Exact&resourceVersion=0", "FieldValueForbidden"),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", "FieldValueNotSupported"),
    ] {
        let refused = list(&server, query).await.expect(422);
        assert_eq!((refused.reason(), refused.cause_fields()), ("Invalid", vec!["resourceVersionMatch"]));
        assert_eq!(refused.json["details"]["causes"][0]["reason"], reason, "{query}");
    }
    list(&server, "resourceVersion=x").await.expect(400);
}

/// Case 21.
#[tokio::test]
async fn labels_select() {
    let server = Server::start();
    labelled(&server, "blue", json!({"color": "blue", "size": "9"})).await;
    labelled(&server, "none", json!({})).await;
    labelled(&server, "red", json!({"color": "red"})).await;
    for (selector, expected) in [
        ("color=red", "red"),
        ("color==red", "red"),
        ("color!=red", "blue none"),
        ("color in (red,blue)", "blue red"),
        ("color notin (red)", "blue none"),
        ("color", "blue red"),
        ("!color", "none"),
        ("color,size=9", "blue"),
        ("color!=red,!size", "none"),
        ("color=", ""),
        ("", "blue none red"),
    ] {
        let selector = selector.replace(' ', "%20").replace('=', "%3D").replace(',', "%2C");
        let found = list(&server, &format!("labelSelector={selector}")).await.expect(200);
        assert_eq!(found.names().join(" "), expected, "{selector}");
    }
    for broken in ["a%3D%3D%3Db", "a%20in", "a%20in%20(", "%2Ca", "-a", "a%3D-b", "a%20b"] {
        assert_eq!(list(&server, &format!("labelSelector={broken}")).await.expect(400).reason(), "BadRequest");
    }
}

/// Case 21.
#[tokio::test]
async fn fields_select_where_a_type_has_them() {
    let server = Server::with_widgets().await;
    maps(&server, &["a", "b"]).await;
    server.post("/api/v1/namespaces/kube-system/configmaps", config_map("a")).await.expect(201);
    for (path, selector, expected) in [
        (CONFIG_MAPS, "metadata.name%3Da", "a"),
        (CONFIG_MAPS, "metadata.name!%3Da", "b"),
        (ALL, "metadata.name%3Da", "a a"),
        (ALL, "metadata.namespace%3Dkube-system", "a"),
        (ALL, "metadata.name%3D%3Db,metadata.namespace%3Ddefault", "b"),
        (ALL, "metadata.name%3Db,metadata.namespace%3Dkube-system", ""),
        (CONFIG_MAPS, "metadata.namespace%3Dkube-system", ""),
        ("/api/v1/namespaces", "metadata.name%3Ddefault", "default"),
        ("/api/v1/namespaces", "status.phase%3DTerminating", ""),
    ] {
        let found = server.get(&format!("{path}?fieldSelector={selector}")).await.expect(200);
        assert_eq!(found.names().join(" "), expected, "{path} {selector}");
    }
    let known = "\"spec.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    let unknown = "field label not supported: spec.replicas";
    for (path, watch, why) in [(WIDGETS, "", unknown), (WIDGETS, "&watch=1", unknown), (CONFIG_MAPS, "", known)] {
        let refused = server.get(&format!("{path}?fieldSelector=spec.replicas%3D1{watch}")).await.expect(400);
        assert_eq!(refused.reason(), "BadRequest");
        assert_eq!(refused.message(), why);
    }
    server.get(&format!("{CONFIG_MAPS}?fieldSelector=nonsense")).await.expect(400);
}

/// Each view of an event knows its own names.
#[tokio::test]
async fn events_are_selected_by_the_names_of_their_view() {
    let server = Server::start();
    for (name, about) in [("e1", "x"), ("e2", "y")] {
        let event = json!({
            "metadata": {"name": name}, "type": "Normal", "reason": "R", "message": "m",
            "involvedObject": {"kind": "Pod", "name": about, "namespace": "default"},
        });
        server.post("/api/v1/namespaces/default/events", event).await.expect(201);
    }
    let (core, new) = ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    for (path, selector, expected) in [
        (core, "involvedObject.name%3Dy", Some("e2")),
        (core, "involvedObject.kind%3DPod,involvedObject.name!%3Dy,type%3DNormal", Some("e1")),
        (core, "regarding.name%3Dy", None),
        (new, "regarding.name%3Dy", Some("e2")),
        (new, "regarding.namespace%3Ddefault,regarding.name%3Dx", Some("e1")),
        (new, "involvedObject.name%3Dy", None),
    ] {
        let found = server.get(&format!("{path}?fieldSelector={selector}")).await;
        assert_eq!(found.code, if expected.is_some() { 200 } else { 400 }, "{path} {selector}: {}", found.text);
        assert_eq!(found.names(), expected.into_iter().collect::<Vec<_>>());
    }
}

/// Case 21.
#[tokio::test]
async fn fields_that_a_definition_names_select() {
    let server = Server::start();
    let mut definition = widgets();
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.replicas"}]);
    }
    server.install(definition).await;
    for name in ["a", "b"] {
        server.post(WIDGETS, widget(name)).await.expect(201);
    }
    let red = format!("{WIDGETS}?fieldSelector=spec.color%3Dred");
    assert_eq!(server.get(&red).await.expect(200).names(), ["a", "b"]);
    let mut watch = server.watch(&format!("{red}&watch=1&resourceVersion={}", server.server.revision())).await;
    server.merge(&format!("{WIDGETS}/a"), json!({"spec": {"color": "blue", "replicas": 3}})).await.expect(200);
    let (kind, left) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &left["spec"]["color"]), ("DELETED", &json!("red")));
    assert_eq!(server.get(&red).await.expect(200).names(), ["b"]);
    let three = server.get(&format!("{WIDGETS}?fieldSelector=spec.replicas%3D3,spec.color!%3Dred")).await.expect(200);
    assert_eq!(three.names(), ["a"]);
    server.get(&format!("{WIDGETS}?fieldSelector=spec.note%3Dx")).await.expect(400);
}

#[tokio::test]
async fn items_are_in_the_order_of_their_keys() {
    let server = Server::start();
    for namespace in ["a", "a-b", "b"] {
        server.post("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await.expect(201);
        for name in ["b", "a", "a.b", "a-b", "a0"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            server.post(&path, config_map(name)).await.expect(201);
        }
    }
    let key = |item: &Value| -> String {
        format!("{}/{}", item["metadata"]["namespace"].as_str().unwrap(), item["metadata"]["name"].as_str().unwrap())
    };
    let all = server.get(ALL).await.expect(200);
    let keys: Vec<_> = all.json["items"].as_array().unwrap().iter().map(key).collect();
    let mut expected = Vec::new();
    // A minus is less than the slash after the namespace.
    for namespace in ["a-b", "a", "b"] {
        expected.extend(["a", "a-b", "a.b", "a0", "b"].map(|name| format!("{namespace}/{name}")));
    }
    assert_eq!(keys, expected);
    let mut watch = server.watch(&format!("{ALL}?watch=1")).await;
    assert_eq!(watch.take(15).await.iter().map(|(_, object)| key(object)).collect::<Vec<_>>(), expected);
    let mut paged = Vec::new();
    let mut page = server.get(&format!("{ALL}?limit=4")).await.expect(200);
    loop {
        paged.extend(page.json["items"].as_array().unwrap().iter().map(key));
        let Some(token) = page.json["metadata"]["continue"].as_str() else { break };
        page = server.get(&format!("{ALL}?limit=4&continue={token}")).await.expect(200);
    }
    assert_eq!(paged, expected);
}

#[tokio::test]
async fn items_of_custom_lists_say_their_kind_and_those_of_built_ins_do_not() {
    let server = Server::with_widgets().await;
    maps(&server, &["a"]).await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let list = server.get(CONFIG_MAPS).await.expect(200).json;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
    let list = server.get(WIDGETS).await.expect(200).json;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("WidgetList"), &json!("example.com/v1")));
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
        (&json!("Widget"), &json!("example.com/v1"))
    );
    let nothing = server.get("/api/v1/namespaces/nowhere/configmaps").await.expect(200).json;
    assert_eq!(nothing["items"], json!([]));
}
