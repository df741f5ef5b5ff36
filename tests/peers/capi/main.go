// Command peer runs both sides of Cluster API's Runtime SDK for tests of another implementation:
// an extension server, and a runtime client.
//
// It reads one command per line from standard input, as JSON, and writes one answer per line to
// standard output. It ends when standard input is closed.
//
// The path of the module is below that of Cluster API, because the runtime client is internal.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/go-logr/logr"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// maxLine is the maximum length of a command in bytes.
const maxLine = 64 << 20

// command is a line of input. Op selects the fields that are used.
type command struct {
	Op string `json:"op"`
	serveCommand
	clientCommand
}

// answer is a line of output.
type answer struct {
	// Error is the text of the error, if the command failed.
	Error string `json:"error,omitempty"`
	// Result depends on the command.
	Result any `json:"result,omitempty"`
}

func main() {
	// Discard the log, because answers contain the errors that tests cause.
	log.SetOutput(io.Discard)
	ctrl.SetLogger(logr.Discard())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return err
	}
	caller := &caller{catalog: catalog}
	if err := caller.connect(ctx, ""); err != nil {
		return err
	}
	extensions := &extensions{catalog: catalog}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLine)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var command command
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			return fmt.Errorf("cannot parse the command: %w", err)
		}
		var answer answer
		result, err := execute(ctx, command, extensions, caller)
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Result = result
		}
		if err := output.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func execute(ctx context.Context, command command, extensions *extensions, caller *caller) (any, error) {
	switch command.Op {
	case "serve":
		return extensions.serve(ctx, command.serveCommand)
	case "requests":
		return extensions.takeRequests(), nil
	case "identify":
		return nil, caller.connect(ctx, command.Identity)
	case "namespaces":
		caller.namespaces.labels = command.Namespaces
		return nil, nil
	case "discover":
		return caller.Discover(ctx, command.Config)
	case "register":
		return nil, caller.Register(command.Config)
	case "call":
		return caller.call(ctx, command.clientCommand)
	case "callAll":
		return caller.callAll(ctx, command.clientCommand)
	}
	return nil, fmt.Errorf("unknown command %q", command.Op)
}
