// Workloads with the server that KUBECONFIG names: events from the socket to a
// worker, and sync. The server is the Rust bench executable with `--serve`.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

func liveWorkloads() []workload {
	sync := func(name string) []workload {
		return []workload{
			{[]string{name}, "ms", stores, syncTime},
			{[]string{name}, "ms", []string{controllerRuntime}, readerSyncTime},
		}
	}
	all := []workload{{[]string{"ingest-event"}, "us", stores, ingest}}
	all = append(all, sync("sync-100k-embedded")...)
	return append(all, sync("sync-100k-real")...)
}

// liveEvents and livePods are the sizes of the servers in benches/cache/serve.
func liveEvents(quick bool) int { return pick(quick, 20_000, 60_000) }
func livePods(quick bool) int   { return pick(quick, 10_000, 100_000) }

// configuration uses JSON, client-go's default, as for custom resources.
func configuration() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
}

// liveInformer lists and watches pods on the server.
func liveInformer(implementation string) (cache.SharedIndexInformer, error) {
	config, err := configuration()
	if err != nil {
		return nil, err
	}
	var source cache.ListerWatcher
	if implementation == clientGoUnstructured {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
		source = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (apiruntime.Object, error) {
				return pods.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, options)
			},
		}
	} else {
		config.GroupVersion = &corev1.SchemeGroupVersion
		config.APIPath = "/api"
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		client, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, err
		}
		source = cache.NewListWatchFromClient(client, "pods", "", fields.Everything())
	}
	pod, _ := example(implementation)
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	return cache.NewSharedIndexInformer(source, pod, 0, indexers), nil
}

// ingest measures the wall time per event, from the first event of the handler
// to the last item of a worker.
func ingest(implementation string, quick bool) ([]float64, error) {
	informer, err := liveInformer(implementation)
	if err != nil {
		return nil, err
	}
	queue := workqueue.NewTyped[string]()
	defer queue.ShutDown()
	last := podKey(liveEvents(quick))
	done := make(chan struct{})
	for range 8 {
		go func() {
			for {
				key, over := queue.Get()
				if over {
					return
				}
				if key == last {
					close(done)
				}
				queue.Done(key)
			}
		}()
	}
	var begun time.Time
	var seen atomic.Int64
	handler := handlerFunc(func(o metav1.Object) {
		if seen.Add(1) == 1 {
			begun = time.Now()
		}
		if key, err := cache.MetaNamespaceKeyFunc(o); err == nil {
			queue.Add(key)
		}
	})
	if _, err := informer.AddEventHandler(handler); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go informer.RunWithContext(ctx)
	<-done
	elapsed := time.Since(begun)
	if got := int(seen.Load()); got != liveEvents(quick) {
		return nil, fmt.Errorf("the handler received %d events instead of %d", got, liveEvents(quick))
	}
	return []float64{nanoseconds(elapsed, liveEvents(quick)) / 1e3}, nil
}

func syncTime(implementation string, quick bool) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := time.Now()
	informer, err := liveInformer(implementation)
	if err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	waitUntilSynced(informer.HasSynced)
	elapsed := time.Since(start)
	return milliseconds(elapsed), complete(informer.GetStore(), quick)
}

// readerSyncTime measures controller-runtime's cache as a manager creates it. It
// requests pods as protobuf if the server supports it.
func readerSyncTime(_ string, quick bool) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := time.Now()
	config, err := configuration()
	if err != nil {
		return nil, err
	}
	reader, err := ctrlcache.New(config, ctrlcache.Options{})
	if err != nil {
		return nil, err
	}
	go func() { _ = reader.Start(ctx) }()
	informer, err := reader.GetInformer(ctx, &corev1.Pod{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	waitUntilSynced(informer.HasSynced)
	elapsed := time.Since(start)
	return milliseconds(elapsed), complete(informer.(cache.SharedIndexInformer).GetStore(), quick)
}

// waitUntilSynced polls more often than client-go's function, which polls every
// 100 ms.
func waitUntilSynced(synced func() bool) {
	for !synced() {
		time.Sleep(time.Millisecond)
	}
}

func complete(store cache.Store, quick bool) error {
	if got := len(store.ListKeys()); got != livePods(quick) {
		return fmt.Errorf("%d pods instead of %d", got, livePods(quick))
	}
	return nil
}

func milliseconds(elapsed time.Duration) []float64 {
	return []float64{microseconds(elapsed) / 1e3}
}
