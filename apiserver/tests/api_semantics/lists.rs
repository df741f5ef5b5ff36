//! Lists: resource versions, pages, selectors and order.

use crate::support::*;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::time::Instant;

const ALL: &str = "/api/v1/configmaps";

async fn create_config_maps(server: &Server, names: &[&str]) {
    for name in names {
        server.post(CONFIG_MAPS, config_map(name)).await.expect(201);
    }
}

async fn create_labelled(server: &Server, name: &str, labels: Value) {
    let mut object = config_map(name);
    object["metadata"]["labels"] = labels;
    server.post(CONFIG_MAPS, object).await.expect(201);
}

async fn list(server: &Server, query: &str) -> Reply {
    server.get(&format!("{CONFIG_MAPS}?{query}")).await
}

fn continue_token(reply: &Reply) -> String {
    reply.json["metadata"]["continue"]
        .as_str()
        .expect("a continue token")
        .into()
}

#[tokio::test]
async fn a_compacted_resource_version_expires_for_lists_but_not_for_streaming_lists() {
    let server = Server::start();
    create_config_maps(&server, &["a", "b", "c", "d"]).await;
    let first = list(&server, "limit=2").await.expect(200);
    server.delete(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    create_config_maps(&server, &["e"]).await;
    server.server.compact();

    let query =
        "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?{query}&resourceVersion={}",
            first.rv()
        ))
        .await;
    let kinds: Vec<_> = watch
        .take(5)
        .await
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["ADDED", "ADDED", "ADDED", "ADDED", "BOOKMARK"]);

    let rejected = list(
        &server,
        &format!("resourceVersionMatch=Exact&resourceVersion={}", first.rv()),
    )
    .await
    .expect(410);
    assert_eq!(
        (rejected.reason(), rejected.json["metadata"].get("continue")),
        ("Expired", None)
    );

    let rejected = list(
        &server,
        &format!("limit=2&continue={}", continue_token(&first)),
    )
    .await
    .expect(410);
    assert_eq!(rejected.reason(), "Expired");
    let fresh = URL_SAFE_NO_PAD.decode(continue_token(&rejected)).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&fresh).unwrap()["rv"], -1);
    let rest = list(
        &server,
        &format!("limit=1&continue={}", continue_token(&rejected)),
    )
    .await
    .expect(200);
    assert_eq!(
        (rest.names(), rest.rv()),
        (vec!["d"], server.server.revision())
    );
    assert_eq!(
        list(&server, &format!("continue={}", continue_token(&rest)))
            .await
            .expect(200)
            .names(),
        ["e"]
    );
}

#[tokio::test]
async fn an_expired_page_of_all_namespaces_can_be_continued() {
    let server = Server::start();
    create_config_maps(&server, &["a", "b"]).await;
    server
        .post("/api/v1/namespaces/kube-system/configmaps", config_map("c"))
        .await
        .expect(201);
    let first = server.get(&format!("{ALL}?limit=1")).await.expect(200);
    server
        .merge(&format!("{CONFIG_MAPS}/a"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    server.server.compact();
    let rejected = server
        .get(&format!("{ALL}?continue={}", continue_token(&first)))
        .await
        .expect(410);
    assert_eq!(
        server
            .get(&format!("{ALL}?continue={}", continue_token(&rejected)))
            .await
            .expect(200)
            .names(),
        ["b", "c"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_read_at_a_far_future_resource_version_times_out() {
    let server = Server::start();
    create_config_maps(&server, &["a"]).await;
    let now = server.server.revision();
    let future = now + 1000;
    for path in [
        format!("{CONFIG_MAPS}?resourceVersion={future}"),
        format!("{CONFIG_MAPS}?resourceVersion={future}&resourceVersionMatch=NotOlderThan"),
        format!("{CONFIG_MAPS}/a?resourceVersion={future}"),
    ] {
        let started = Instant::now();
        let rejected = server.get(&path).await.expect(504);
        assert_eq!(started.elapsed().as_secs(), 3, "{path}");
        assert_eq!(rejected.reason(), "Timeout");
        assert_eq!(
            rejected.message(),
            format!("Timeout: Too large resource version: {future}, current: {now}")
        );
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        assert_eq!(
            rejected.json["details"],
            json!({"causes": [cause], "retryAfterSeconds": 1})
        );
        assert_eq!(rejected.headers["retry-after"], "1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_a_future_resource_version() {
    let server = Server::start();
    let path = format!(
        "{CONFIG_MAPS}?resourceVersion={}",
        server.server.revision() + 1
    );
    let (list, ()) = tokio::join!(server.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        create_config_maps(&server, &["a"]).await;
    });
    assert_eq!(list.expect(200).names(), ["a"]);
}

#[tokio::test]
async fn all_pages_show_the_state_of_the_first() {
    let server = Server::start();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    create_config_maps(&server, &names).await;
    let mut page = list(&server, "limit=2").await.expect(200);
    let revision = server.server.revision();
    let mut pages = vec![(
        page.names().join(" "),
        page.rv(),
        page.json["metadata"]["remainingItemCount"].clone(),
    )];
    server.delete(&format!("{CONFIG_MAPS}/d")).await.expect(200);
    create_config_maps(&server, &["cc"]).await;
    server
        .merge(&format!("{CONFIG_MAPS}/f"), json!({"data": {"k": "later"}}))
        .await
        .expect(200);
    while let Some(continue_token) = page.json["metadata"]["continue"].as_str() {
        page = list(&server, &format!("limit=2&continue={continue_token}"))
            .await
            .expect(200);
        assert!(
            page.json["items"]
                .as_array()
                .unwrap()
                .iter()
                .all(|item| item["data"]["k"] == "v")
        );
        pages.push((
            page.names().join(" "),
            page.rv(),
            page.json["metadata"]["remainingItemCount"].clone(),
        ));
    }
    let expected = [
        ("a b", json!(6)),
        ("c d", json!(4)),
        ("e f", json!(2)),
        ("g h", Value::Null),
    ];
    assert_eq!(
        pages,
        expected.map(|(names, remaining)| (names.to_owned(), revision, remaining))
    );
    assert_eq!(
        list(&server, "").await.names(),
        ["a", "b", "c", "cc", "e", "f", "g", "h"]
    );
}

#[tokio::test]
async fn a_page_with_a_selector_has_no_remaining_item_count() {
    let server = Server::start();
    for name in ["a", "b", "c", "d", "e", "f"] {
        create_labelled(&server, name, json!({"odd": (name > "c").to_string()})).await;
    }
    for query in [
        "labelSelector=odd",
        "labelSelector=odd%3Dfalse",
        "fieldSelector=metadata.name!%3Dc",
    ] {
        let page = list(&server, &format!("{query}&limit=2")).await.expect(200);
        assert_eq!(
            (
                page.names(),
                page.json["metadata"].get("remainingItemCount")
            ),
            (vec!["a", "b"], None),
            "{query}"
        );
        let all = list(&server, query).await.expect(200);
        let rest = list(
            &server,
            &format!("{query}&continue={}", continue_token(&page)),
        )
        .await
        .expect(200);
        assert_eq!(rest.names(), all.names()[2..]);
        assert_eq!(
            all.json["metadata"]
                .as_object()
                .unwrap()
                .keys()
                .collect::<Vec<_>>(),
            ["resourceVersion"]
        );
    }
}

#[tokio::test]
async fn a_continue_token_has_the_format_of_the_real_server() {
    let server = Server::start();
    create_config_maps(&server, &["a", "b"]).await;
    for (path, start) in [(CONFIG_MAPS, "a\0"), (ALL, "default/a\0")] {
        let page = server.get(&format!("{path}?limit=1")).await.expect(200);
        let decoded: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(continue_token(&page)).unwrap())
                .unwrap();
        assert_eq!(
            decoded,
            json!({"v": "meta.k8s.io/v1", "rv": page.rv(), "start": start})
        );
    }
}

#[tokio::test]
async fn a_list_at_resource_version_zero_ignores_the_limit() {
    let server = Server::start();
    create_config_maps(&server, &["a", "b", "c"]).await;
    let all = list(&server, "limit=2&resourceVersion=0").await.expect(200);
    assert_eq!(all.names(), ["a", "b", "c"]);
    assert_eq!(
        all.json["metadata"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["resourceVersion"]
    );
    let all = list(
        &server,
        "limit=2&resourceVersion=0&resourceVersionMatch=NotOlderThan",
    )
    .await
    .expect(200);
    assert_eq!(all.names(), ["a", "b", "c"]);
    assert_eq!(
        list(&server, "limit=0").await.expect(200).names(),
        ["a", "b", "c"]
    );
}

#[tokio::test]
async fn a_continue_token_cannot_be_combined_with_a_resource_version() {
    let server = Server::start();
    create_config_maps(&server, &["a", "b", "c"]).await;
    let page = list(&server, "limit=1").await.expect(200);
    let next = continue_token(&page);
    let rejected = list(
        &server,
        &format!("continue={next}&resourceVersion={}", page.rv()),
    )
    .await
    .expect(400);
    assert_eq!(rejected.reason(), "BadRequest");
    assert_eq!(
        rejected.message(),
        "specifying resource version is not allowed when using continue"
    );
    let query = format!(
        "continue={next}&resourceVersion={}&resourceVersionMatch=Exact",
        page.rv()
    );
    assert_eq!(
        list(&server, &query).await.expect(422).cause_fields(),
        ["resourceVersionMatch"]
    );
    for garbage in ["garbage", "!", "e30", &next[1..]] {
        assert_eq!(
            list(&server, &format!("continue={garbage}"))
                .await
                .expect(400)
                .reason(),
            "BadRequest"
        );
    }
    assert_eq!(
        list(&server, "limit=abc").await.expect(400).reason(),
        "BadRequest"
    );
    list(&server, "unknown=1&other=").await.expect(200);
}

#[tokio::test]
async fn a_list_can_show_an_exact_past_resource_version() {
    let server = Server::start();
    create_config_maps(&server, &["a", "b"]).await;
    let then = list(&server, "").await;
    server.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    server
        .merge(&format!("{CONFIG_MAPS}/b"), json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    create_config_maps(&server, &["c"]).await;
    let exact = list(
        &server,
        &format!("resourceVersionMatch=Exact&resourceVersion={}", then.rv()),
    )
    .await
    .expect(200);
    assert_eq!(exact.json, then.json);
    let page = list(
        &server,
        &format!(
            "limit=1&resourceVersionMatch=Exact&resourceVersion={}",
            then.rv()
        ),
    )
    .await;
    assert_eq!((page.names(), page.rv()), (vec!["a"], then.rv()));
    let page = list(
        &server,
        &format!("limit=1&continue={}", continue_token(&page)),
    )
    .await
    .expect(200);
    assert_eq!((page.names(), page.rv()), (vec!["b"], then.rv()));
    for newer in ["resourceVersionMatch=NotOlderThan&", ""] {
        let list = list(&server, &format!("{newer}resourceVersion={}", then.rv()))
            .await
            .expect(200);
        assert_eq!(
            (list.names(), list.rv()),
            (vec!["b", "c"], server.server.revision())
        );
    }
    // A resource version with a limit and without a match means Exact.
    let page = list(&server, &format!("limit=1&resourceVersion={}", then.rv()))
        .await
        .expect(200);
    assert_eq!((page.names(), page.rv()), (vec!["a"], then.rv()));
    // A get at an older resource version returns the current object.
    let got = server
        .get(&format!("{CONFIG_MAPS}/b?resourceVersion={}", then.rv()))
        .await
        .expect(200);
    assert_eq!(got.json["data"]["k"], "w");
}

#[tokio::test]
async fn resource_version_match_requires_a_resource_version() {
    let server = Server::start();
    for (query, reason) in [
        ("resourceVersionMatch=Exact", "FieldValueForbidden"),
        ("resourceVersionMatch=NotOlderThan", "FieldValueForbidden"),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "FieldValueForbidden",
        ),
        (
            "resourceVersionMatch=Sometimes&resourceVersion=1",
            "FieldValueNotSupported",
        ),
    ] {
        let rejected = list(&server, query).await.expect(422);
        assert_eq!(
            (rejected.reason(), rejected.cause_fields()),
            ("Invalid", vec!["resourceVersionMatch"])
        );
        assert_eq!(
            rejected.json["details"]["causes"][0]["reason"], reason,
            "{query}"
        );
    }
    list(&server, "resourceVersion=x").await.expect(400);
}

#[tokio::test]
async fn lists_are_filtered_by_label_selectors() {
    let server = Server::start();
    create_labelled(&server, "blue", json!({"color": "blue", "size": "9"})).await;
    create_labelled(&server, "none", json!({})).await;
    create_labelled(&server, "red", json!({"color": "red"})).await;
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
        let selector = selector
            .replace(' ', "%20")
            .replace('=', "%3D")
            .replace(',', "%2C");
        let found = list(&server, &format!("labelSelector={selector}"))
            .await
            .expect(200);
        assert_eq!(found.names().join(" "), expected, "{selector}");
    }
    for broken in [
        "a%3D%3D%3Db",
        "a%20in",
        "a%20in%20(",
        "%2Ca",
        "-a",
        "a%3D-b",
        "a%20b",
    ] {
        assert_eq!(
            list(&server, &format!("labelSelector={broken}"))
                .await
                .expect(400)
                .reason(),
            "BadRequest"
        );
    }
}

#[tokio::test]
async fn lists_are_filtered_by_supported_field_selectors() {
    let server = Server::with_widgets().await;
    create_config_maps(&server, &["a", "b"]).await;
    server
        .post("/api/v1/namespaces/kube-system/configmaps", config_map("a"))
        .await
        .expect(201);
    for (path, selector, expected) in [
        (CONFIG_MAPS, "metadata.name%3Da", "a"),
        (CONFIG_MAPS, "metadata.name!%3Da", "b"),
        (ALL, "metadata.name%3Da", "a a"),
        (ALL, "metadata.namespace%3Dkube-system", "a"),
        (
            ALL,
            "metadata.name%3D%3Db,metadata.namespace%3Ddefault",
            "b",
        ),
        (
            ALL,
            "metadata.name%3Db,metadata.namespace%3Dkube-system",
            "",
        ),
        (CONFIG_MAPS, "metadata.namespace%3Dkube-system", ""),
        ("/api/v1/namespaces", "metadata.name%3Ddefault", "default"),
        ("/api/v1/namespaces", "status.phase%3DTerminating", ""),
    ] {
        let found = server
            .get(&format!("{path}?fieldSelector={selector}"))
            .await
            .expect(200);
        assert_eq!(found.names().join(" "), expected, "{path} {selector}");
    }
    let known = "\"spec.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    let unknown = "field label not supported: spec.replicas";
    for (path, watch, message) in [
        (WIDGETS, "", unknown),
        (WIDGETS, "&watch=1", unknown),
        (CONFIG_MAPS, "", known),
    ] {
        let rejected = server
            .get(&format!("{path}?fieldSelector=spec.replicas%3D1{watch}"))
            .await
            .expect(400);
        assert_eq!(rejected.reason(), "BadRequest");
        assert_eq!(rejected.message(), message);
    }
    server
        .get(&format!("{CONFIG_MAPS}?fieldSelector=nonsense"))
        .await
        .expect(400);
}

#[tokio::test]
async fn each_event_group_has_its_own_field_selectors() {
    let server = Server::start();
    for (name, about) in [("e1", "x"), ("e2", "y")] {
        let event = json!({
            "metadata": {"name": name}, "type": "Normal", "reason": "R", "message": "m",
            "involvedObject": {"kind": "Pod", "name": about, "namespace": "default"},
        });
        server
            .post("/api/v1/namespaces/default/events", event)
            .await
            .expect(201);
    }
    let core = "/api/v1/namespaces/default/events";
    let events_v1 = "/apis/events.k8s.io/v1/namespaces/default/events";
    for (path, selector, expected) in [
        (core, "involvedObject.name%3Dy", Some("e2")),
        (
            core,
            "involvedObject.kind%3DPod,involvedObject.name!%3Dy,type%3DNormal",
            Some("e1"),
        ),
        (core, "regarding.name%3Dy", None),
        (events_v1, "regarding.name%3Dy", Some("e2")),
        (
            events_v1,
            "regarding.namespace%3Ddefault,regarding.name%3Dx",
            Some("e1"),
        ),
        (events_v1, "involvedObject.name%3Dy", None),
    ] {
        let found = server
            .get(&format!("{path}?fieldSelector={selector}"))
            .await;
        assert_eq!(
            found.code,
            if expected.is_some() { 200 } else { 400 },
            "{path} {selector}: {}",
            found.text
        );
        assert_eq!(found.names(), expected.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn selectable_fields_of_a_crd_work_as_field_selectors() {
    let server = Server::start();
    let mut crd = widgets();
    for version in crd["spec"]["versions"].as_array_mut().unwrap() {
        version["selectableFields"] =
            json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.replicas"}]);
    }
    server.install(crd).await;
    for name in ["a", "b"] {
        server.post(WIDGETS, widget(name)).await.expect(201);
    }
    let red = format!("{WIDGETS}?fieldSelector=spec.color%3Dred");
    assert_eq!(server.get(&red).await.expect(200).names(), ["a", "b"]);
    let mut watch = server
        .watch(&format!(
            "{red}&watch=1&resourceVersion={}",
            server.server.revision()
        ))
        .await;
    server
        .merge(
            &format!("{WIDGETS}/a"),
            json!({"spec": {"color": "blue", "replicas": 3}}),
        )
        .await
        .expect(200);
    let (kind, left) = watch.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &left["spec"]["color"]),
        ("DELETED", &json!("red"))
    );
    assert_eq!(server.get(&red).await.expect(200).names(), ["b"]);
    let three = server
        .get(&format!(
            "{WIDGETS}?fieldSelector=spec.replicas%3D3,spec.color!%3Dred"
        ))
        .await
        .expect(200);
    assert_eq!(three.names(), ["a"]);
    server
        .get(&format!("{WIDGETS}?fieldSelector=spec.note%3Dx"))
        .await
        .expect(400);
}

#[tokio::test]
async fn lists_watches_and_pages_are_sorted_by_storage_key() {
    let server = Server::start();
    for namespace in ["a", "a-b", "b"] {
        server
            .post(
                "/api/v1/namespaces",
                json!({"metadata": {"name": namespace}}),
            )
            .await
            .expect(201);
        for name in ["b", "a", "a.b", "a-b", "a0"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            server.post(&path, config_map(name)).await.expect(201);
        }
    }
    let key = |item: &Value| -> String {
        format!(
            "{}/{}",
            item["metadata"]["namespace"].as_str().unwrap(),
            item["metadata"]["name"].as_str().unwrap()
        )
    };
    let all = server.get(ALL).await.expect(200);
    let keys: Vec<_> = all.json["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(key)
        .collect();
    let mut expected = Vec::new();
    // In storage keys `-` sorts before the `/` after the namespace.
    for namespace in ["a-b", "a", "b"] {
        expected.extend(["a", "a-b", "a.b", "a0", "b"].map(|name| format!("{namespace}/{name}")));
    }
    assert_eq!(keys, expected);
    let mut watch = server.watch(&format!("{ALL}?watch=1")).await;
    assert_eq!(
        watch
            .take(15)
            .await
            .iter()
            .map(|(_, object)| key(object))
            .collect::<Vec<_>>(),
        expected
    );
    let mut paged = Vec::new();
    let mut page = server.get(&format!("{ALL}?limit=4")).await.expect(200);
    loop {
        paged.extend(page.json["items"].as_array().unwrap().iter().map(key));
        let Some(continue_token) = page.json["metadata"]["continue"].as_str() else {
            break;
        };
        page = server
            .get(&format!("{ALL}?limit=4&continue={continue_token}"))
            .await
            .expect(200);
    }
    assert_eq!(paged, expected);
}

#[tokio::test]
async fn items_of_custom_lists_have_a_kind_and_items_of_built_in_lists_do_not() {
    let server = Server::with_widgets().await;
    create_config_maps(&server, &["a"]).await;
    server.post(WIDGETS, widget("a")).await.expect(201);
    let list = server.get(CONFIG_MAPS).await.expect(200).json;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    assert_eq!(
        (
            list["items"][0].get("kind"),
            list["items"][0].get("apiVersion")
        ),
        (None, None)
    );
    let list = server.get(WIDGETS).await.expect(200).json;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("WidgetList"), &json!("example.com/v1"))
    );
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
        (&json!("Widget"), &json!("example.com/v1"))
    );
    let nothing = server
        .get("/api/v1/namespaces/nowhere/configmaps")
        .await
        .expect(200)
        .json;
    assert_eq!(nothing["items"], json!([]));
}
