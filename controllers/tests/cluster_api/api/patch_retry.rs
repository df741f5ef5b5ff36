//! The patch helper when the object changes between read and patch.

use super::patch::{Fixture, set};
use crate::support::at;
use anyhow::{Result, anyhow};
use parking_lot::Mutex;
use serde_json::json;
use steersman::{
    client::{Answer, Call, Interceptor, Next, Patch, Verb},
    conditions::{Status, new},
    prelude::*,
    testing::Env,
};
use steersman_controllers::cluster_api::{Cluster, PatchOptions, conditions};

/// Answers the first read of a Cluster with an older state.
struct Behind(Mutex<Option<Cluster>>);

impl Interceptor for Behind {
    async fn intercept(
        &self,
        call: &Call<'_>,
        next: Next<'_>,
    ) -> steersman::client::Result<Answer> {
        let older = (call.verb == Verb::Get)
            .then(|| self.0.lock().take())
            .flatten();
        match older {
            Some(older) => Ok(serde_json::to_value(older).expect("valid JSON").into()),
            None => next.run().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_are_merged_into_the_state_of_the_server_if_the_cache_is_behind() -> Result<()> {
    let mut fixture = Fixture::new(&Env::embedded()?).await?;
    fixture.other_sets("Ready", false).await?;
    let older = fixture.read().await?;
    let removed = Patch::Merge(
        json!({"status": {"conditions": null, "deprecated": null, "phase": "Pending"}}),
    );
    let key = ObjectKey::of(&older);
    fixture
        .other
        .status()
        .patch::<Cluster>(&key, &removed)
        .await?;

    // The older state is a conflict, its resource version another one.
    let options = PatchOptions::default();
    for type_ in ["Ready", "Other"] {
        let behind = Behind(Mutex::new(Some(older.clone())));
        fixture.client = fixture.other.intercepted(behind);
        let helper = fixture.helper();
        set(&mut fixture.cluster, type_, true, "AllGood");
        helper.patch(&fixture.cluster, &options).await?;
        assert!(
            conditions::is_true(&fixture.read().await?, type_),
            "{type_}"
        );
    }
    Ok(())
}

/// Returns the result of patching a condition if the first `conflicts` attempts have a conflict.
async fn patch_with_conflicts(conflicts: u64) -> Result<(std::result::Result<(), String>, usize)> {
    let env = Env::embedded()?;
    let mut fixture = Fixture::new(&env).await?;
    let Env::Embedded(embedded) = &env else {
        unreachable!("started as embedded")
    };
    let fault = format!("PATCH clusters/status -> 409 {conflicts} times");
    embedded.server().faults().add(fault.parse()?);
    let helper = fixture.helper();
    conditions::set(
        &mut fixture.cluster,
        new("Ready", Status::True, "AllGood", "", at(0)),
    );
    let result = helper
        .patch(&fixture.cluster, &PatchOptions::default())
        .await;
    let result = result.map_err(|error| format!("{:#}", anyhow!(error)));
    let attempts = fixture.writes.take().len();
    let written = conditions::is_true(&fixture.read().await?, "Ready");
    assert_eq!(written, result.is_ok());
    Ok((result, attempts))
}

#[tokio::test(start_paused = true)]
async fn conditions_are_patched_again_after_a_conflict() -> Result<()> {
    let start = tokio::time::Instant::now();
    let (result, attempts) = patch_with_conflicts(4).await?;
    assert_eq!((result, attempts), (Ok(()), 5));
    let waited = start.elapsed().as_millis();
    assert!(
        (400..1_000).contains(&waited),
        "4 waits of 100 to 200 ms: {waited} ms"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn conditions_are_not_patched_after_five_conflicts() -> Result<()> {
    let (result, attempts) = patch_with_conflicts(5).await?;
    let error = result.unwrap_err();
    assert_eq!(attempts, 5);
    let expected = "failed to patch status conditions: timed out waiting for the condition: ";
    assert!(error.contains(expected), "{error}");
    Ok(())
}
