//! The patch helper with the option `joined_status`.

use super::patch::{Fixture, set};
use anyhow::Result;
use serde_json::json;
use steersman::testing::Env;
use steersman_controllers::cluster_api::{Cluster, PatchOptions};

const JOINED: PatchOptions<'static> = PatchOptions {
    owned: &[],
    owned_deprecated: &[],
    force_overwrite: false,
    observed_generation: false,
    joined_status: true,
};

fn set_phase(cluster: &mut Cluster, phase: Option<&str>) {
    cluster.status.get_or_insert_default().phase = phase.map(str::to_owned);
}

steersman::env_test! {
    async fn a_joined_status_is_one_patch(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        set(&mut fixture.cluster, "ShopReady", true, "Ready");
        set_phase(&mut fixture.cluster, Some("Pending"));
        helper.patch(&fixture.cluster, &JOINED).await?;
        let writes = fixture.writes.take();
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert_eq!(writes[0].1["status"]["phase"], "Pending");
        assert_eq!(writes[0].1["status"]["conditions"][0]["type"], "ShopReady");
        assert_eq!(fixture.read().await?.status, fixture.cluster.status);
        Ok(())
    }

    async fn a_joined_status_without_a_changed_condition_is_patched_alone(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        let helper = fixture.helper();
        set_phase(&mut fixture.cluster, Some("Pending"));
        helper.patch(&fixture.cluster, &JOINED).await?;
        let body = json!({"status": {"phase": "Pending"}});
        assert_eq!(fixture.writes.take(), [("status".into(), body)]);
        Ok(())
    }

    async fn a_joined_status_keeps_what_another_process_wrote(env: Env) -> Result<()> {
        let mut fixture = Fixture::new(&env).await?;
        set_phase(&mut fixture.cluster, Some("Pending"));
        fixture.helper().patch(&fixture.cluster, &JOINED).await?;
        fixture.cluster = fixture.read().await?;
        fixture.other_sets("OtherReady", true).await?;
        let helper = fixture.helper();
        set(&mut fixture.cluster, "ShopReady", true, "Ready");
        set_phase(&mut fixture.cluster, None);
        fixture.cluster.status.get_or_insert_default().observed_generation = Some(1);
        helper.patch(&fixture.cluster, &JOINED).await?;
        let status = fixture.read().await?.status.expect("a status");
        let types: Vec<_> = status.conditions.iter().map(|it| it.type_.as_str()).collect();
        assert_eq!(types, ["OtherReady", "ShopReady"]);
        assert_eq!((status.phase, status.observed_generation), (None, Some(1)));
        Ok(())
    }
}
