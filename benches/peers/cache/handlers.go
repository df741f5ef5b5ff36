// Events from the informer through the store to 1, 4 and 16 handlers. The time
// ends when every handler has received the last event. Objects are decoded
// before.
package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func handlerWorkloads() []workload {
	with := func(handlers int) workload {
		name := fmt.Sprintf("handlers-%d", handlers)
		return workload{[]string{name}, "ns", stores, func(implementation string, quick bool) ([]float64, error) {
			return events(implementation, quick, handlers)
		}}
	}
	return []workload{with(1), with(4), with(16)}
}

// example returns an object of the informer's type and an empty list of it.
func example(implementation string) (object, apiruntime.Object) {
	meta := metav1.ListMeta{ResourceVersion: "1"}
	if implementation == clientGoUnstructured {
		pod := &unstructured.Unstructured{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		list := &unstructured.UnstructuredList{}
		list.SetResourceVersion(meta.ResourceVersion)
		return pod, list
	}
	return &corev1.Pod{}, &corev1.PodList{ListMeta: meta}
}

// handlerFunc returns a handler that calls a function for every added or
// updated object.
func handlerFunc(handle func(metav1.Object)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { handle(o.(metav1.Object)) },
		UpdateFunc: func(_, o any) { handle(o.(metav1.Object)) },
	}
}

// events creates objects, updates each, and creates one more as the last event.
func events(implementation string, quick bool, handlers int) ([]float64, error) {
	distinct := pick(quick, 5_000, 10_000)
	objects := decoded(implementation, append(upTo(distinct), upTo(distinct+1)...), firstRevision+1, false)
	last := objects[len(objects)-1].GetName()

	changes := watch.NewFakeWithChanSize(100, false)
	pod, list := example(implementation)
	informer := cache.NewSharedIndexInformer(fromMemory{list, changes}, pod, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var seen sync.WaitGroup
	for range handlers {
		seen.Add(1)
		handler := handlerFunc(func(o metav1.Object) {
			if o.GetName() == last {
				seen.Done()
			}
		})
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("the informer did not sync")
	}
	start := time.Now()
	for i, o := range objects {
		kind := watch.Added
		if i >= distinct && i < len(objects)-1 {
			kind = watch.Modified
		}
		changes.Action(kind, o)
	}
	seen.Wait()
	elapsed := time.Since(start)
	runtime.KeepAlive(objects)
	return []float64{nanoseconds(elapsed, len(objects))}, nil
}
