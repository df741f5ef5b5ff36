// A watch that is forbidden beside one that is not, on the server that
// KUBECONFIG names: that of `--serve` of our own bench program.
package main

import (
	"context"
	"fmt"
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
// maps has, ten of which change per second, from its start on, while its
// watch of secrets is refused; they can be listed. The first reconcile of each
// does not count: it is of the list.
func forbidden(implementation string, quick bool) ([]float64, error) {
	window := pick(quick, 10*time.Second, 30*time.Second)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	informers, err := cache.New(config, cache.Options{})
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
	sources := []source.Source{
		source.Kind[client.Object](informers, &corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}),
		source.Kind[client.Object](informers, &corev1.Secret{}, handler.Funcs{}),
	}
	for _, source := range sources {
		if err := c.Watch(source); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), window)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- informers.Start(ctx) }()
	go func() { ended <- c.Start(ctx) }()
	for range cap(ended) {
		if err := <-ended; err != nil {
			return nil, err
		}
	}
	if len(seen) == 0 {
		fmt.Fprintln(os.Stderr, "peers: nothing was reconciled")
	}
	return []float64{float64(count) / window.Seconds()}, nil
}
