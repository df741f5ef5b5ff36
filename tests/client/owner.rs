//! Tests of owner references on both servers.

use super::support::{config_map, live};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use std::time::Duration;
use steersman::{client::owner, object::ObjectKey, testing::Env};

steersman::env_test! {
    async fn a_child_is_deleted_with_its_last_owner(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let first = client.create(&config_map(&namespace, "first", "blue")).await?;
        let second = client.create(&config_map(&namespace, "second", "blue")).await?;
        let mut child = config_map(&namespace, "child", "blue");
        owner::set_controller(&first, &mut child)?;
        owner::add(&second, &mut child)?;
        let child = client.create(&child).await?;
        assert!(owner::is_controlled_by(&child, &first) && !owner::is_controlled_by(&child, &second));

        let key = ObjectKey::of(&child);
        client.delete::<ConfigMap>(&ObjectKey::of(&first)).await?;
        loop {
            let child = client.get::<ConfigMap>(&key).await?.expect("another owner");
            if owner::controller_of(&*child).is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.delete::<ConfigMap>(&ObjectKey::of(&second)).await?;
        while client.get::<ConfigMap>(&key).await?.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn a_cluster_scoped_owner_can_own_in_any_namespace(env: Env) -> anyhow::Result<()> {
        let (client, namespace) = live(&env).await?;
        let owner = client.get::<Namespace>(&ObjectKey::cluster_scoped(&namespace)).await?.expect("the object exists");
        let mut child = config_map(&namespace, "child", "blue");
        owner::set_controller(&*owner, &mut child)?;
        assert!(owner::is_controlled_by(&client.create(&child).await?, &*owner));
        Ok(())
    }
}
