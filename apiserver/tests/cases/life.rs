use crate::support::*;
use serde_json::json;

#[tokio::test]
async fn a_widget_lives_and_dies() {
    let server = Server::with_widgets().await;
    let made = server.post(WIDGETS, widget("a")).await.expect(201);
    assert_eq!(made.json["spec"], json!({"color": "red", "replicas": 1}));
    let mut watch = server.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.next_name().await, ("ADDED".into(), "a".into()));
    server.merge(&format!("{WIDGETS}/a"), json!({"spec": {"color": "blue"}})).await.expect(200);
    assert_eq!(watch.next_name().await, ("MODIFIED".into(), "a".into()));
    server.delete(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(watch.next_name().await, ("DELETED".into(), "a".into()));
    server.get(&format!("{WIDGETS}/a")).await.expect(404);
}
