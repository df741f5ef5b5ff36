// A watch that is forbidden beside one that is not, on the server that
// KUBECONFIG names: that of `--serve` of our own bench program.
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

// forbidden measures how many reconciles per second a controller of config
// maps has, one of which changes ten times per second, from its start on, while
// it may neither list nor watch secrets. The first reconcile of each does not
// count: it is of the list. What comes late comes as one: changes that wait
// together are reconciled once.
//
// The secrets are a source.Informer, and of a cache of their own: a controller's
// start waits for a source.Kind, and a source.Kind for everything in its cache.
// It would not begin, and end after two minutes.
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
		return nil, errors.New("nothing is forbidden here")
	}
	return []float64{float64(count) / window.Seconds()}, nil
}
