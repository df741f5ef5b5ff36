package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"sync"
	"time"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
)

// portAttempts is the maximum number of ports to try, if other processes take the free ones.
const portAttempts = 5

// serveCommand describes an extension.
type serveCommand struct {
	// CertDir is a directory with tls.crt and tls.key.
	CertDir string `json:"certDir"`
	// ClientCA is the name of a file in CertDir. Empty: clients need no certificate.
	ClientCA string    `json:"clientCA"`
	Handlers []handler `json:"handlers"`
}

// handler is a handler that sends a fixed response.
type handler struct {
	Name           string                        `json:"name"`
	Hook           string                        `json:"hook"`
	TimeoutSeconds *int32                        `json:"timeoutSeconds"`
	FailurePolicy  *runtimehooksv1.FailurePolicy `json:"failurePolicy"`
	// Milliseconds is the time until the response.
	Milliseconds int `json:"milliseconds"`
	// Response has the fields of the hook's response.
	Response json.RawMessage `json:"response"`
}

// received is a request that a handler received.
type received struct {
	Handler string `json:"handler"`
	Request any    `json:"request"`
}

// extensions are the running extensions, with the requests that they received.
type extensions struct {
	catalog  *runtimecatalog.Catalog
	mutex    sync.Mutex
	requests []received
}

// serve starts an extension on a free port and returns its address.
func (e *extensions) serve(ctx context.Context, command serveCommand) (string, error) {
	var failed error
	for range portAttempts {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		if failed = e.start(ctx, command, port); failed == nil {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
		}
	}
	return "", failed
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (e *extensions) start(ctx context.Context, command serveCommand, port int) error {
	extension, err := server.New(server.Options{
		Catalog:      e.catalog,
		Host:         "127.0.0.1",
		Port:         port,
		CertDir:      command.CertDir,
		ClientCAName: command.ClientCA,
	})
	if err != nil {
		return err
	}
	for _, handler := range command.Handlers {
		hook, ok := hooks[handler.Hook]
		if !ok {
			return fmt.Errorf("unknown hook %q", handler.Hook)
		}
		err := extension.AddExtensionHandler(server.ExtensionHandler{
			Hook:           hook,
			Name:           handler.Name,
			HandlerFunc:    e.function(handler, hook),
			TimeoutSeconds: handler.TimeoutSeconds,
			FailurePolicy:  handler.FailurePolicy,
		})
		if err != nil {
			return err
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- extension.Start(ctx) }()
	started := extension.StartedChecker()
	for {
		select {
		case err := <-stopped:
			return fmt.Errorf("the server stopped: %w", err)
		case <-time.After(5 * time.Millisecond):
			if command.ClientCA != "" {
				// The check has no client certificate. A connection shows that the port is open.
				connection, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err == nil {
					return connection.Close()
				}
			} else if started(nil) == nil {
				return nil
			}
		}
	}
}

// function returns a function with the request and response types of the hook.
func (e *extensions) function(handler handler, hook runtimecatalog.Hook) runtimecatalog.Hook {
	types := reflect.TypeOf(hook)
	arguments := []reflect.Type{reflect.TypeFor[context.Context](), types.In(0), types.In(1)}
	call := func(values []reflect.Value) []reflect.Value {
		ctx := values[0].Interface().(context.Context)
		e.record(received{handler.Name, values[1].Interface()})
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(handler.Milliseconds) * time.Millisecond):
		}
		if err := json.Unmarshal(handler.Response, values[2].Interface()); err != nil {
			panic(fmt.Sprintf("invalid response of handler %s: %v", handler.Name, err))
		}
		return nil
	}
	return reflect.MakeFunc(reflect.FuncOf(arguments, nil, false), call).Interface()
}

func (e *extensions) record(request received) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.requests = append(e.requests, request)
}

// takeRequests returns the requests since the last call.
func (e *extensions) takeRequests() []received {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	// Not nil, which would be null in JSON.
	requests := append([]received{}, e.requests...)
	e.requests = nil
	return requests
}
