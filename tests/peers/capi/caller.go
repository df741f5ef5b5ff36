package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	runtimeclient "sigs.k8s.io/cluster-api/exp/runtime/client"
	internalclient "sigs.k8s.io/cluster-api/internal/runtime/client"
	"sigs.k8s.io/cluster-api/internal/runtime/registry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clientCommand describes a call of the runtime client.
type clientCommand struct {
	Config *runtimev1.ExtensionConfig `json:"config"`
	// Identity is a directory with the certificate of the client.
	Identity string `json:"identity"`
	// Namespaces are labels of Namespaces, by name.
	Namespaces map[string]map[string]string `json:"namespaces"`
	Hook       string                       `json:"hook"`
	// Extension is the registered name of a handler.
	Extension string                        `json:"extension"`
	Object    *metav1.PartialObjectMetadata `json:"object"`
	Request   json.RawMessage               `json:"request"`
}

// caller is a runtime client with its registry.
type caller struct {
	runtimeclient.Client
	catalog    *runtimecatalog.Catalog
	namespaces namespaces
}

// connect replaces the runtime client by one with an empty registry. identity is a directory with
// tls.crt and tls.key. Empty: the client has no certificate.
func (c *caller) connect(ctx context.Context, identity string) error {
	options := internalclient.Options{
		Catalog:  c.catalog,
		Registry: registry.New(),
		Client:   &c.namespaces,
	}
	if identity != "" {
		options.CertFile = filepath.Join(identity, "tls.crt")
		options.KeyFile = filepath.Join(identity, "tls.key")
	}
	client, _, err := internalclient.New(ctx, options)
	if err != nil {
		return err
	}
	c.Client = client
	return client.WarmUp(&runtimev1.ExtensionConfigList{})
}

func (c *caller) call(ctx context.Context, command clientCommand) (any, error) {
	hook, request, response, err := c.objects(command)
	if err != nil {
		return nil, err
	}
	err = c.CallExtension(ctx, hook, command.Object, command.Extension, request, response)
	return response, err
}

func (c *caller) callAll(ctx context.Context, command clientCommand) (any, error) {
	hook, request, response, err := c.objects(command)
	if err != nil {
		return nil, err
	}
	err = c.CallAllExtensions(ctx, hook, command.Object, request, response)
	return response, err
}

// objects returns the hook, its request and an empty response.
func (c *caller) objects(command clientCommand) (
	runtimecatalog.Hook, runtimehooksv1.RequestObject, runtimehooksv1.ResponseObject, error,
) {
	hook, ok := hooks[command.Hook]
	if !ok {
		return nil, nil, nil, fmt.Errorf("unknown hook %q", command.Hook)
	}
	gvh, err := c.catalog.GroupVersionHook(hook)
	if err != nil {
		return nil, nil, nil, err
	}
	request, err := c.catalog.NewRequest(gvh)
	if err != nil {
		return nil, nil, nil, err
	}
	response, err := c.catalog.NewResponse(gvh)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := json.Unmarshal(command.Request, request); err != nil {
		return nil, nil, nil, fmt.Errorf("invalid request: %w", err)
	}
	return hook, request.(runtimehooksv1.RequestObject), response.(runtimehooksv1.ResponseObject), nil
}

// namespaces is a client that reads the metadata of Namespaces. The runtime client calls no other
// methods.
type namespaces struct {
	client.Client
	labels map[string]map[string]string
}

func (n *namespaces) Scheme() *runtime.Scheme {
	return runtime.NewScheme()
}

func (n *namespaces) Get(
	_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	labels, ok := n.labels[key.Name]
	if !ok {
		return fmt.Errorf("namespaces %q not found", key.Name)
	}
	object.SetName(key.Name)
	object.SetLabels(labels)
	return nil
}
