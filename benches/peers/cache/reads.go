// Reads: single objects, all objects, by label, and by index. client-go returns
// the objects of its store, which callers must not change. controller-runtime's
// reader returns copies.
package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func readWorkloads() []workload {
	names := []string{"list-100k", "list-label", "index-1000", "index-100"}
	return []workload{
		{[]string{"get", "get-2t"}, "ns", stores, gets},
		{[]string{"get", "get-2t"}, "ns", []string{controllerRuntime}, readerGets},
		{names, "us", stores, lists},
		{names, "us", []string{controllerRuntime}, readerLists},
	}
}

func byLabel(name string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		return []string{o.(metav1.Object).GetLabels()[name]}, nil
	}
}

// filled returns a store with 100,000 pods.
func filled(implementation string) (cache.Indexer, error) {
	store := newStore()
	for _, object := range decoded(implementation, upTo(count), firstRevision, false) {
		if err := store.Add(object); err != nil {
			return nil, err
		}
	}
	return store, nil
}

func gets(implementation string, quick bool) ([]float64, error) {
	store, err := filled(implementation)
	if err != nil {
		return nil, err
	}
	keys := make([]string, count)
	for i, number := range shuffled(count, count) {
		keys[i] = podKey(number)
	}
	return measureGets(quick, func(i int) bool {
		_, exists, _ := store.GetByKey(keys[i])
		return exists
	})
}

// measureGets measures gets on one goroutine and on two at once. get takes the
// position of a key in the order of reading.
func measureGets(quick bool, get func(int) bool) ([]float64, error) {
	const batch = 100
	var missing atomic.Bool
	work := func(from, to int) int {
		done := 0
		for start := time.Now(); time.Since(start) < minimumDuration(quick); {
			for range batch {
				if !get(from + done%(to-from)) {
					missing.Store(true)
				}
				done++
			}
		}
		return done
	}
	work(0, count)
	start := time.Now()
	done := work(0, count)
	one := nanoseconds(time.Since(start), done)

	var group sync.WaitGroup
	var others int
	start = time.Now()
	group.Go(func() { others = work(count/2, count) })
	done = work(0, count/2)
	group.Wait()
	two := nanoseconds(time.Since(start), done+others)
	if missing.Load() {
		return nil, fmt.Errorf("a pod is missing")
	}
	return []float64{one, two}, nil
}

func lists(implementation string, quick bool) ([]float64, error) {
	store, err := filled(implementation)
	if err != nil {
		return nil, err
	}
	if err := store.AddIndexers(cache.Indexers{"node": byLabel("node"), "set": byLabel("set")}); err != nil {
		return nil, err
	}
	tenth, err := labels.Parse("app=app-3")
	if err != nil {
		return nil, err
	}
	var wrong error
	measure := func(expected int, list func() int) float64 {
		return perCall(quick, func() {
			if got := list(); got != expected {
				wrong = fmt.Errorf("%d pods instead of %d", got, expected)
			}
		}) / 1e3
	}
	by := func(index, value string) func() int {
		return func() int {
			found, _ := store.ByIndex(index, value)
			return len(found)
		}
	}
	values := []float64{
		measure(count, func() int { return len(store.List()) }),
		measure(count/10, func() int {
			var found []any
			_ = cache.ListAll(store, tenth, func(o any) { found = append(found, o) })
			return len(found)
		}),
		measure(1_000, by("node", "node-042")),
		measure(100, by("set", "set-0042")),
	}
	return values, wrong
}

func readerGets(_ string, quick bool) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader, err := filledReader(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]client.ObjectKey, count)
	for i, number := range shuffled(count, count) {
		namespace, name, _ := strings.Cut(podKey(number), "/")
		keys[i] = client.ObjectKey{Namespace: namespace, Name: name}
	}
	return measureGets(quick, func(i int) bool {
		return reader.Get(ctx, keys[i], &corev1.Pod{}) == nil
	})
}

func readerLists(_ string, quick bool) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader, err := filledReader(ctx)
	if err != nil {
		return nil, err
	}
	var wrong error
	measure := func(expected int, options ...client.ListOption) float64 {
		return perCall(quick, func() {
			var list corev1.PodList
			if err := reader.List(ctx, &list, options...); err != nil {
				wrong = err
			} else if len(list.Items) != expected {
				wrong = fmt.Errorf("%d pods instead of %d", len(list.Items), expected)
			}
		}) / 1e3
	}
	values := []float64{
		measure(count),
		measure(count/10, client.MatchingLabels{"app": "app-3"}),
		measure(1_000, client.MatchingFields{"node": "node-042"}),
		measure(100, client.MatchingFields{"set": "set-0042"}),
	}
	return values, wrong
}

// filledReader returns controller-runtime's cache with an informer that lists
// 100,000 pods from memory.
func filledReader(ctx context.Context) (client.Reader, error) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, object := range decoded(clientGo, upTo(count), firstRevision, false) {
		list.Items = append(list.Items, *object.(*corev1.Pod))
	}
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	reader, err := ctrlcache.New(&rest.Config{Host: "http://unused.invalid"}, ctrlcache.Options{
		HTTPClient: &http.Client{},
		Mapper:     mapper,
		NewInformer: func(_ cache.ListerWatcher, o apiruntime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(fromMemory{list, watch.NewFake()}, o, resync, indexers)
		},
	})
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"node", "set"} {
		values := func(o client.Object) []string { return []string{o.GetLabels()[name]} }
		if err := reader.IndexField(ctx, &corev1.Pod{}, name, values); err != nil {
			return nil, err
		}
	}
	go func() { _ = reader.Start(ctx) }()
	if !reader.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("the cache did not sync")
	}
	return reader, nil
}

// fromMemory lists and watches objects in memory, without streaming lists.
type fromMemory struct {
	list    apiruntime.Object
	changes watch.Interface
}

func (m fromMemory) List(metav1.ListOptions) (apiruntime.Object, error) { return m.list, nil }
func (m fromMemory) Watch(metav1.ListOptions) (watch.Interface, error)  { return m.changes, nil }
func (m fromMemory) IsWatchListSemanticsUnSupported() bool              { return true }
