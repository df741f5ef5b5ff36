// The pods of the cache benches, the same bytes as in benches/cache/pods.rs.
// Line breaks and indentation of the two files are removed, then each @NAME@ is
// replaced.
package main

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"runtime"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

//go:embed pod.json
var podFile string

//go:embed managed-fields.json
var managedFieldsFile string

// Of 100,000 pods, each namespace and each node has 1,000, each set 100, and
// each app 10,000.
const (
	namespaces    = 100
	nodes         = 100
	sets          = 1_000
	apps          = 10
	firstRevision = 10_000_000
)

// object is a typed or unstructured pod.
type object interface {
	metav1.Object
	apiruntime.Object
}

type pods struct {
	// parts are literal text at even indexes, names of placeholders at odd ones.
	parts         []string
	managedFields string
}

func newPods(managed bool) *pods {
	p := &pods{parts: strings.Split(minify(podFile), "@")}
	if managed {
		p.managedFields = `,"managedFields":` + minify(managedFieldsFile)
	}
	return p
}

func (p *pods) json(number, revision int) []byte {
	text := make([]byte, 0, 8_192)
	for i, part := range p.parts {
		if i%2 == 0 {
			text = append(text, part...)
			continue
		}
		switch part {
		case "NUMBER":
			text = fmt.Appendf(text, "%08d", number)
		case "NAMESPACE":
			text = fmt.Appendf(text, "%03d", number%namespaces)
		case "NODE":
			text = fmt.Appendf(text, "%03d", number/100%nodes)
		case "SET":
			text = fmt.Appendf(text, "%04d", number%sets)
		case "APP":
			text = strconv.AppendInt(text, int64(number%apps), 10)
		case "REVISION":
			text = strconv.AppendInt(text, int64(revision), 10)
		case "MANAGED":
			text = append(text, p.managedFields...)
		default:
			panic("pod.json has an unknown @" + part + "@")
		}
	}
	return text
}

func minify(file string) string {
	var text strings.Builder
	for line := range strings.Lines(file) {
		text.WriteString(strings.TrimLeft(strings.TrimSuffix(line, "\n"), " "))
	}
	return text.String()
}

// podsHash returns the FNV-1a hash of the first thousand pods, without and with
// managed fields.
func podsHash() string {
	hash := fnv.New64a()
	for _, managed := range []bool{false, true} {
		p := newPods(managed)
		for number := range 1_000 {
			hash.Write(p.json(number, firstRevision+number))
		}
	}
	return fmt.Sprintf("%016x", hash.Sum64())
}

// podKey returns client-go's key of a pod.
func podKey(number int) string {
	return fmt.Sprintf("namespace-%03d/object-%08d", number%namespaces, number)
}

// shuffled returns numbers below count in a scattered order, each once before
// the sequence repeats. count must be a power of ten.
func shuffled(count, length int) []int {
	numbers := make([]int, length)
	for i := range numbers {
		numbers[i] = i * 7_919 % count
	}
	return numbers
}

func upTo(count int) []int {
	numbers := make([]int, count)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// decode decodes a JSON body as client-go does.
func decode(implementation string, text []byte) object {
	var decoded object
	var err error
	if implementation == clientGoUnstructured {
		pod := &unstructured.Unstructured{}
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &pod.Object)
		decoded = pod
	} else {
		pod := &corev1.Pod{}
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, pod)
		decoded = pod
	}
	if err != nil {
		panic(err)
	}
	return decoded
}

// decoded returns the pods with these numbers, with increasing revisions. It
// uses all cores and runs the garbage collector at the end.
func decoded(implementation string, numbers []int, revision int, managed bool) []object {
	p := newPods(managed)
	objects := make([]object, len(numbers))
	var group sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < len(numbers); i += workers {
				objects[i] = decode(implementation, p.json(numbers[i], revision+i))
			}
		})
	}
	group.Wait()
	runtime.GC()
	return objects
}
