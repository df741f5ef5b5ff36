//! Events of what is merely referred to: a function says for whom they matter.

use super::{Enqueue, Handler, Requests, Unique, later::is_permanent};
use crate::{cache::Cache, event::Event, object::Object, workqueue::Key};
use std::{marker::PhantomData, sync::Arc};

/// Whatever `map` says, of the old and of the new object of an update: who was referred to before is told, too. Each request once, in that order.
///
/// `map` may return a `Result`. A mapping that fails is retried, see [`Enqueue::later`], unless the
/// object is deleted and cannot be decoded, see [`Event`]. If `map` decodes the object, annotate
/// the type of the closure's argument (`|map: &Object<ConfigMap>|`), or pass a function.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use steersman::{handler, prelude::*, reconcile::Request};
///
/// fn website(map: &Object<ConfigMap>) -> Option<Request> {
///     Some(Request::new(map.namespace()?, map.meta().labels().get("website")?))
/// }
///
/// let mut map = ConfigMap::default();
/// map.metadata.namespace = Some("shop".into());
/// map.metadata.labels = Some([("website".into(), "front".into())].into());
/// let told = handler::requests(&handler::map(website), Event::update(ConfigMap::default(), map)).await;
/// assert_eq!(told, [Request::new("shop", "front")]);
/// # }
/// ```
pub fn map<K: 'static, R: Key, I: Requests<R> + 'static, F>(map: F) -> impl Handler<K, R> + use<K, R, I, F>
where
    F: Fn(&Object<K>) -> I + Send + Sync + 'static,
{
    Map(Arc::new(move |object: &Object<K>, _: Option<&Cache>| map(object)), PhantomData)
}

/// [`map`] for a function that looks at other kinds, in the cache that the event comes from: of two clusters it is the right one.
///
/// Who is reconciled may be read so; what is not declared yet is, and held while the answer is looked for only, so that it is better declared before. Until the informer
/// has listed, the read fails, and the event is looked at again.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// use steersman::{handler, prelude::*, reconcile::{Request, Result}};
///
/// /// Every deployment in the namespace of a config map.
/// fn neighbours(map: &Object<ConfigMap>, cache: &Cache) -> Result<Vec<Request>> {
///     let deployments = cache.informer::<Deployment>()?.list(&Query::default().namespace(map.namespace()))?;
///     Ok(deployments.iter().map(|deployment| ObjectKey::of(&**deployment)).collect())
/// }
///
/// # fn example(manager: &steersman::manager::ManagerHandle) {
/// let builder = manager.controller("website").for_::<Deployment>();
/// let builder = builder.watches::<ConfigMap>(handler::map_with_cache(neighbours));
/// # }
/// ```
pub fn map_with_cache<K: 'static, R: Key, I: Requests<R> + 'static, F>(map: F) -> impl Handler<K, R> + use<K, R, I, F>
where
    F: Fn(&Object<K>, &Cache) -> I + Send + Sync + 'static,
{
    let map = move |object: &Object<K>, cache: Option<&Cache>| match cache {
        Some(cache) => Ok(map(object, cache)),
        None => Err(anyhow::anyhow!("there is no cache to look into: use `handler::map`, or give the controller one")),
    };
    Map(Arc::new(map), PhantomData)
}

struct Map<K, F>(Arc<F>, PhantomData<fn(K)>);

impl<K: 'static, R: Key, I: Requests<R> + 'static, F> Handler<K, R> for Map<K, F>
where
    F: Fn(&Object<K>, Option<&Cache>) -> I + Send + Sync + 'static,
{
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        let mut requests = Unique::default();
        for object in event.old().into_iter().chain([event.object()]) {
            let mapped = self.0(object, queue.cache()).each(&mut |request| requests.add(request));
            // The source counts and logs an object that cannot be decoded.
            if mapped.is_err_and(|error| !is_permanent(&error)) {
                // Where it fails again, it is said.
                let (map, object, cache) = (self.0.clone(), object.clone(), queue.cache().cloned());
                queue.later(move || std::future::ready(map(&object, cache.as_ref())));
            }
        }
        requests.into_iter().for_each(|request| queue.add(request));
    }
}

/// [`map`] for functions that wait. Events that follow are handled meanwhile; a controller's start waits for the first attempt.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Secret;
/// use steersman::{handler, prelude::*, reconcile::{Request, Result}};
///
/// async fn users_of(secret: Object<Secret>) -> Result<Vec<Request>> {
///     // … ask somebody …
///     Ok(vec![Request::new("shop", "front")])
/// }
///
/// let told = handler::requests(&handler::map_async(users_of), Event::create(Secret::default())).await;
/// assert_eq!(told, [Request::new("shop", "front")]);
/// # }
/// ```
pub fn map_async<K: 'static, R: Key, I: Requests<R>, Fut, F>(map: F) -> impl Handler<K, R> + use<K, R, I, Fut, F>
where
    Fut: Future<Output = I> + Send + 'static,
    F: Fn(Object<K>) -> Fut + Send + Sync + 'static,
{
    MapAsync(Arc::new(map))
}

struct MapAsync<F>(Arc<F>);

impl<K: 'static, R: Key, I: Requests<R>, Fut, F> Handler<K, R> for MapAsync<F>
where
    Fut: Future<Output = I> + Send + 'static,
    F: Fn(Object<K>) -> Fut + Send + Sync + 'static,
{
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        let (map, event) = (self.0.clone(), event.clone());
        queue.later(move || {
            let (map, event) = (map.clone(), event.clone());
            async move {
                let mut mapped = Mapped { requests: Unique::default(), failed: None };
                for object in event.old().into_iter().chain([event.object()]) {
                    match map(object.clone()).await.each(&mut |request| mapped.requests.add(request)) {
                        Err(error) if is_permanent(&error) => mapped.failed = Some(error),
                        other => other?,
                    }
                }
                anyhow::Ok(mapped)
            }
        });
    }
}

/// Requests of an event, and the error of an object that can never be mapped.
struct Mapped<R> {
    requests: Unique<R>,
    failed: Option<anyhow::Error>,
}

impl<R: Key> Requests<R> for Mapped<R> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.requests.each(add)?;
        self.failed.map_or(Ok(()), Err)
    }
}
