package main

import (
	"fmt"
	"math/rand"
)

// gen makes random values.
type gen struct {
	r    *rand.Rand
	wild bool // invalid values and duplicates
}

// anyValue returns a value without a schema.
func (g gen) anyValue(depth int) any {
	switch g.r.Intn(8) {
	case 0:
		return g.r.Intn(4)
	case 1:
		return g.r.Intn(2) == 0
	case 2:
		return float64(g.r.Intn(6)) + 0.5
	case 3:
		if depth > 0 {
			l := L{}
			for range g.r.Intn(3) {
				l = append(l, g.anyValue(depth-1))
			}
			return l
		}
	case 4, 5:
		if depth > 0 {
			m := M{}
			for range g.r.Intn(3) {
				m[pick(g.r, names...)] = g.anyValue(depth - 1)
			}
			return m
		}
	}
	return pick(g.r, "x", "y", "z<", "a b", "")
}

// value returns a value of the schema. A wild one may violate it.
func (g gen) value(s M, depth int) any {
	r := g.r
	if g.wild && r.Intn(40) == 0 {
		return nil
	}
	if g.wild && r.Intn(60) == 0 {
		return g.anyValue(2)
	}
	if s["x-kubernetes-int-or-string"] == true {
		if r.Intn(2) == 0 {
			return r.Intn(3)
		}
		return pick(r, "10%", "x")
	}
	switch s["type"] {
	case "string":
		if s["format"] == "date-time" {
			return "2020-01-01T00:00:00Z"
		}
		return pick(r, "x", "y", "z", "w&v")
	case "integer":
		return pick(r, 0, 1, 2, 3, 1000000)
	case "number":
		return pick[any](r, 0, 1, 1.5, 2.25, 0.00001)
	case "boolean":
		return r.Intn(2) == 0
	case "array":
		item, _ := s["items"].(M)
		l := L{}
		seen := map[string]bool{}
		for range r.Intn(4) {
			v := g.value(item, depth-1)
			if s["x-kubernetes-list-type"] == "set" || s["x-kubernetes-list-type"] == "map" {
				k := fmt.Sprint(v)
				if m, ok := v.(M); ok && s["x-kubernetes-list-type"] == "map" {
					k = ""
					for _, key := range s["x-kubernetes-list-map-keys"].(L) {
						if _, ok := m[key.(string)]; !ok && (key == "a" || (g.wild && r.Intn(4) == 0)) && !(g.wild && r.Intn(20) == 0) {
							m[key.(string)] = g.value(item["properties"].(M)[key.(string)].(M), 0)
						}
						kv := m[key.(string)]
						if kv == nil {
							kv = item["properties"].(M)[key.(string)].(M)["default"]
						}
						k += fmt.Sprint(kv) + ","
					}
				}
				if seen[k] && !(g.wild && r.Intn(5) == 0) {
					continue
				}
				seen[k] = true
			}
			l = append(l, v)
		}
		return l
	case "object":
		m := M{}
		if props, ok := s["properties"].(M); ok {
			for _, k := range sorted(props) {
				if r.Intn(2) == 0 {
					m[k] = g.value(props[k].(M), depth-1)
				}
			}
			if g.wild && r.Intn(60) == 0 {
				m["undeclared"] = "x"
			}
		} else if ap, ok := s["additionalProperties"].(M); ok {
			for range r.Intn(4) {
				m[pick(r, names...)] = g.value(ap, depth-1)
			}
		}
		if s["x-kubernetes-embedded-resource"] == true {
			m["apiVersion"] = "v1"
			m["kind"] = "Pod"
			if r.Intn(2) == 0 {
				m["metadata"] = M{"name": pick(r, "x", "y"), "labels": M{"l": pick(r, "1", "2")}}
			}
		}
		if s["x-kubernetes-preserve-unknown-fields"] == true {
			for range r.Intn(4) {
				k := pick(r, "f", "g", "h")
				m[k] = g.anyValue(2)
			}
		}
		return m
	}
	panic(fmt.Sprint(s))
}

// metadata returns the metadata of an object.
func (g gen) metadata(full bool) M {
	r := g.r
	m := M{"name": "w", "namespace": "ns"}
	if r.Intn(2) == 0 {
		l := M{}
		for range 1 + r.Intn(3) {
			l[pick(r, "l1", "l2", "l3/x")] = pick(r, "1", "2")
		}
		m["labels"] = l
	}
	if r.Intn(4) == 0 {
		m["annotations"] = M{pick(r, "n1", "n2"): pick(r, "1", "2")}
	}
	if r.Intn(4) == 0 {
		m["finalizers"] = pick(r, L{"x/1"}, L{"x/1", "x/2"}, L{"x/2"}, L{})
	}
	if r.Intn(5) == 0 {
		o := L{}
		for _, u := range []string{"u1", "u2"} {
			if r.Intn(2) == 0 {
				o = append(o, M{"apiVersion": "v1", "kind": "Pod", "name": pick(r, "p", "q"), "uid": u})
			}
		}
		m["ownerReferences"] = o
	}
	return m
}

// object returns an object of a version.
func (g gen) object(version string, s M, full bool) M {
	o := M{"apiVersion": group + "/" + version, "kind": "Widget", "metadata": g.metadata(full)}
	for _, k := range []string{"spec", "status", "data"} {
		if sub, ok := s["properties"].(M)[k].(M); ok && (g.r.Intn(8) > 0) {
			if k == "spec" || g.r.Intn(3) == 0 {
				o[k] = g.value(sub, 4)
			}
		}
	}
	return o
}
