//! The condition `Paused`.

use crate::support::{at, client, cluster};
use anyhow::Result;
use serde_json::json;
use steersman::{prelude::*, testing::Env};
use steersman_controllers::cluster_api::{
    Cluster, Paused, annotations,
    conditions::{self, PAUSED},
    ensure_paused, is_paused,
};

fn find(cluster: &Cluster) -> (String, String, String, Option<i64>) {
    let condition = conditions::find(cluster, PAUSED)
        .expect("the condition")
        .clone();
    (
        condition.status,
        condition.reason,
        condition.message,
        condition.observed_generation,
    )
}

steersman::env_test! {
    async fn the_condition_paused_is_written_once_per_change(env: Env) -> Result<()> {
        let client = client(&env).await?;
        let cases = [
            ("neither", false, false, ""),
            ("cluster", true, false, "Cluster spec.paused is set to true"),
            ("object", false, true, "Cluster has the cluster.x-k8s.io/paused annotation"),
            (
                "both", true, true,
                "Cluster spec.paused is set to true, Cluster has the cluster.x-k8s.io/paused annotation",
            ),
        ];
        for (name, cluster_paused, object_paused, message) in cases {
            let of = cluster("of", json!({"paused": cluster_paused}));
            let mut object = cluster(name, json!({"paused": false}));
            if object_paused {
                let annotation = (annotations::PAUSED.to_owned(), String::new());
                object.metadata.annotations = Some([annotation].into());
            }
            let mut object = client.create(&object).await?;
            let is_paused_now = cluster_paused || object_paused;
            assert_eq!(is_paused(Some(&of), &object), is_paused_now);
            let expected = |was_written| Paused { is_paused: is_paused_now, was_written };
            let (status, reason) = if is_paused_now { ("True", "Paused") } else { ("False", "NotPaused") };
            let state = |generation| (status.to_owned(), reason.to_owned(), message.to_owned(), Some(generation));

            let first = ensure_paused(&client, Some(&of), &mut object, at(0)).await?;
            assert_eq!((first, find(&object)), (expected(true), state(1)), "{name}");
            assert!(first.ends_reconcile());
            let key = ObjectKey::of(&object);
            let read = async || Ok::<_, anyhow::Error>(client.get::<Cluster>(&key).await?.expect("created above"));
            assert_eq!(find(&*read().await?), state(1), "{name}");

            let second = ensure_paused(&client, Some(&of), &mut object, at(1)).await?;
            assert_eq!((second, find(&object)), (expected(false), state(1)), "{name}");
            assert_eq!(second.ends_reconcile(), is_paused_now);

            // A new generation is written only if the object is paused.
            object.metadata.generation = Some(2);
            let third = ensure_paused(&client, Some(&of), &mut object, at(2)).await?;
            assert_eq!((third, find(&object)), (expected(is_paused_now), state(2)), "{name}");
            let written = if is_paused_now { 2 } else { 1 };
            assert_eq!(find(&*read().await?), state(written), "{name}");
        }
        Ok(())
    }

    async fn an_object_without_a_cluster_is_paused_by_its_annotation(env: Env) -> Result<()> {
        let client = client(&env).await?;
        let mut object = client.create(&cluster("shop", json!({"paused": true}))).await?;
        let paused = ensure_paused(&client, None, &mut object, at(0)).await?;
        assert_eq!(paused, Paused { is_paused: false, was_written: true });
        assert!(!is_paused(None, &object));
        Ok(())
    }
}
