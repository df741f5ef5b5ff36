//! Handlers that map objects to requests with a function.

use super::{Deduped, Enqueue, Handler, Requests, trigger::is_body_dropped};
use crate::{cache::Cache, event::Event, object::Object, workqueue::Key};
use std::{marker::PhantomData, sync::Arc};

/// Creates a handler that enqueues the requests that `map` returns for the object.
///
/// For an update, `map` is called with the old and the new object, so that the previous targets are
/// enqueued, too. Duplicates are removed.
///
/// `map` may return a `Result`. A mapping that fails is retried, see [`Enqueue::add_async`], unless
/// the object cannot be decoded, see [`Event`]. If `map` decodes the object,
/// annotate the type of the closure's argument (`|map: &Object<ConfigMap>|`), or pass a function.
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
/// let requests = handler::requests(&handler::map(website), Event::update(ConfigMap::default(), map)).await;
/// assert_eq!(requests, [Request::new("shop", "front")]);
/// # }
/// ```
pub fn map<K: 'static, R: Key, I: Requests<R> + 'static, F>(
    map: F,
) -> impl Handler<K, R> + use<K, R, I, F>
where
    F: Fn(&Object<K>) -> I + Send + Sync + 'static,
{
    Map(
        Arc::new(move |object: &Object<K>, _: Option<&Cache>| map(object)),
        PhantomData,
    )
}

/// Creates a handler like [`map`], for a function that reads from the cache.
///
/// The cache is that of the event, also with several clusters.
///
/// Declare the informers that the function reads beforehand. Otherwise the function declares them,
/// and they live only during the call. Until an informer has listed its objects, the read fails,
/// and the mapping is retried.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// use steersman::{handler, prelude::*, reconcile::{Request, Result}};
///
/// /// Returns every deployment in the namespace of a config map.
/// fn deployments_in_namespace(map: &Object<ConfigMap>, cache: &Cache) -> Result<Vec<Request>> {
///     let deployments = cache.informer::<Deployment>()?.list(&Query::default().namespace(map.namespace()))?;
///     Ok(deployments.iter().map(|deployment| ObjectKey::of(&**deployment)).collect())
/// }
///
/// # fn example(manager: &steersman::manager::ManagerHandle) {
/// let builder = manager.controller("website").for_::<Deployment>();
/// let builder = builder.watches::<ConfigMap>(handler::map_with_cache(deployments_in_namespace));
/// # }
/// ```
pub fn map_with_cache<K: 'static, R: Key, I: Requests<R> + 'static, F>(
    map: F,
) -> impl Handler<K, R> + use<K, R, I, F>
where
    F: Fn(&Object<K>, &Cache) -> I + Send + Sync + 'static,
{
    let map = move |object: &Object<K>, cache: Option<&Cache>| match cache {
        Some(cache) => Ok(map(object, cache)),
        None => Err(anyhow::anyhow!(
            "cannot map the event: the controller has no cache; use `handler::map`, or pass a \
             cache to the builder"
        )),
    };
    Map(Arc::new(map), PhantomData)
}

struct Map<K, F>(Arc<F>, PhantomData<fn(K)>);

impl<K: 'static, R: Key, I: Requests<R> + 'static, F> Handler<K, R> for Map<K, F>
where
    F: Fn(&Object<K>, Option<&Cache>) -> I + Send + Sync + 'static,
{
    fn handle(&self, event: &Event<K>, queue: &Enqueue<R>) {
        let mut requests = Deduped::default();
        for object in event.old().into_iter().chain([event.object()]) {
            let mapped = self.0(object, queue.cache()).each(&mut |request| requests.add(request));
            // The source counts and logs an object whose body was dropped.
            if mapped.is_err_and(|error| !is_body_dropped(&error)) {
                let (map, object, cache) = (self.0.clone(), object.clone(), queue.cache().cloned());
                queue.add_async(move || std::future::ready(map(&object, cache.as_ref())));
            }
        }
        // After the calls of `add_async`, so that the requests are recorded with their event.
        queue.add_mapped(requests.into_iter().collect());
    }
}

/// Creates a handler like [`map`], for an async function.
///
/// Later events are handled while it waits. The start of a controller waits for the first attempt.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use k8s_openapi::api::core::v1::Secret;
/// use steersman::{handler, prelude::*, reconcile::{Request, Result}};
///
/// async fn users_of(secret: Object<Secret>) -> Result<Vec<Request>> {
///     // … query another system …
///     Ok(vec![Request::new("shop", "front")])
/// }
///
/// let requests = handler::requests(&handler::map_async(users_of), Event::create(Secret::default())).await;
/// assert_eq!(requests, [Request::new("shop", "front")]);
/// # }
/// ```
pub fn map_async<K: 'static, R: Key, I: Requests<R>, Fut, F>(
    map: F,
) -> impl Handler<K, R> + use<K, R, I, Fut, F>
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
        let (map, event, own_queue) = (self.0.clone(), event.clone(), queue.clone());
        queue.add_async(move || {
            let (map, event, queue) = (map.clone(), event.clone(), own_queue.clone());
            async move {
                let mut mapped = Mapped {
                    requests: Deduped::default(),
                    failed: None,
                };
                for object in event.old().into_iter().chain([event.object()]) {
                    match map(object.clone())
                        .await
                        .each(&mut |request| mapped.requests.add(request))
                    {
                        Err(error) if queue.is_permanent(&error) => mapped.failed = Some(error),
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
    requests: Deduped<R>,
    failed: Option<anyhow::Error>,
}

impl<R: Key> Requests<R> for Mapped<R> {
    fn each(self, add: &mut dyn FnMut(R)) -> anyhow::Result<()> {
        self.requests.each(add)?;
        self.failed.map_or(Ok(()), Err)
    }
}
