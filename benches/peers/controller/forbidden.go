// A controller with two watches, one of which is forbidden. KUBECONFIG names
// the server, which is the Rust bench executable with `--serve`.
package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// forbidden measures the reconciles per second of a ConfigMap that changes ten
// times per second, while the controller may neither list nor watch Secrets. The
// first reconcile of each object comes from the list and is not counted. Changes
// that wait together are reconciled once, so delays lower the rate.
//
// The Secrets are watched with a source.Informer and a cache of their own. With
// a source.Kind the controller would wait for all informers of its cache, and
// fail after two minutes without starting.
func forbidden(implementation string, quick bool) ([]float64, error) {
	window := pick(quick, 10*time.Second, 30*time.Second)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	healthy, err := cache.New(config, cache.Options{})
	if err != nil {
		return nil, err
	}
	refused, err := cache.New(config, cache.Options{})
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	seen := map[string]bool{}
	count := 0
	reconciling := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		lock.Lock()
		defer lock.Unlock()
		if seen[request.Name] {
			count++
		}
		seen[request.Name] = true
		return reconcile.Result{}, nil
	})
	c, err := controller.NewUnmanaged("bench", options(implementation, 1, reconciling))
	if err != nil {
		return nil, err
	}
	secrets, err := refused.GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	sources := []source.Source{
		source.Kind[client.Object](healthy, &corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}),
		&source.Informer{Informer: secrets, Handler: handler.Funcs{}},
	}
	for _, source := range sources {
		if err := c.Watch(source); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), window)
	defer cancel()
	ended := make(chan error, 3)
	for _, start := range []func(context.Context) error{healthy.Start, refused.Start, c.Start} {
		go func() { ended <- start(ctx) }()
	}
	for range cap(ended) {
		if err := <-ended; err != nil {
			return nil, err
		}
	}
	if secrets.HasSynced() {
		return nil, errors.New("no watch is forbidden")
	}
	return []float64{float64(count) / window.Seconds()}, nil
}
