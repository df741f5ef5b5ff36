package main

import (
	"math/rand"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// set returns the set of dotted paths.
func set(paths ...string) *fieldpath.Set {
	s := fieldpath.NewSet()
	for _, p := range paths {
		parts := []interface{}{}
		for _, n := range strings.Split(p, ".") {
			parts = append(parts, n)
		}
		s.Insert(fieldpath.MakePathOrDie(parts...))
	}
	return s
}

// entries returns the entries as they serialize.
func entries(l []metav1.ManagedFieldsEntry) any {
	if l == nil {
		l = []metav1.ManagedFieldsEntry{}
	}
	return clone(M{"l": l}).(M)["l"]
}

// scaleCases records both conversions of random managed fields.
func scaleCases() L {
	out := L{}
	for seed := range int64(60) {
		r := rand.New(rand.NewSource(seed))
		gen := func(scale bool) []metav1.ManagedFieldsEntry {
			l := []metav1.ManagedFieldsEntry{}
			for range r.Intn(5) {
				e := metav1.ManagedFieldsEntry{Manager: pick(r, "m1", "m2", "m3"), Operation: pick(r, metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate),
					APIVersion: pick(r, "example.com/v1", "example.com/v1", "example.com/v2", "example.com/v3", "example.com/v4"), Subresource: pick(r, "", "", "scale"), FieldsType: "FieldsV1"}
				s := fieldpath.NewSet()
				for _, p := range []string{"spec.replicas", "spec.count", "spec.x", "metadata.labels"} {
					if r.Intn(2) == 0 {
						s = s.Union(set(p))
					}
				}
				if scale {
					e.APIVersion = "autoscaling/v1"
				}
				if r.Intn(4) > 0 {
					t := metav1.NewTime(time.Date(2020, 1, 1, r.Intn(20), 0, 0, 0, time.UTC))
					e.Time = &t
				}
				b, _ := s.ToJSON()
				e.FieldsV1 = &metav1.FieldsV1{}
				e.FieldsV1.SetRawBytes(b)
				l = append(l, e)
			}
			return l
		}
		mapping := managedfields.ResourcePathMappings{"example.com/v1": fieldpath.MakePathOrDie("spec", "replicas"), "example.com/v2": fieldpath.MakePathOrDie("spec", "count"), "example.com/v3": nil}
		parent := gen(false)
		h := managedfields.NewScaleHandler(parent, schema.GroupVersion{Group: group, Version: pick(r, "v1", "v2")}, mapping)
		version := "example.com/v1"
		sub, err := h.ToSubresource()
		if err != nil {
			panic(err)
		}
		scale := gen(true)
		for _, e := range sub {
			if r.Intn(2) == 0 {
				scale = append(scale, e)
			}
		}
		h = managedfields.NewScaleHandler(parent, schema.GroupVersion{Group: group, Version: "v1"}, mapping)
		par, err := h.ToParent(scale)
		if err != nil {
			panic(err)
		}
		out = append(out, M{"parent": entries(parent), "version": version, "toSubresource": entries(sub), "scale": entries(scale), "toParent": entries(par)})
	}
	return out
}
