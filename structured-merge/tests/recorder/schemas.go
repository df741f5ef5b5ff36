package main

import (
	"math/rand"
)

// scalarSchema returns the schema of a random scalar.
func scalarSchema(r *rand.Rand) M {
	switch r.Intn(8) {
	case 0:
		return M{"type": "integer"}
	case 1:
		return M{"type": "boolean"}
	case 2:
		return M{"type": "number"}
	case 3:
		return M{"type": "string", "format": "date-time"}
	case 4:
		return M{"x-kubernetes-int-or-string": true}
	case 5:
		return M{"type": "string", "nullable": true}
	}
	return M{"type": "string"}
}

// objSchema returns the schema of an object with random fields.
func objSchema(r *rand.Rand, depth int) M {
	props := M{}
	for _, n := range names {
		if r.Intn(3) > 0 {
			props[n] = genSchema(r, depth-1)
		}
	}
	if len(props) == 0 {
		props["a"] = scalarSchema(r)
	}
	s := M{"type": "object", "properties": props}
	if r.Intn(5) == 0 {
		s["x-kubernetes-map-type"] = "atomic"
	} else if r.Intn(6) == 0 {
		s["x-kubernetes-map-type"] = "granular"
	}
	return s
}

// genSchema returns a random schema with at most depth levels.
func genSchema(r *rand.Rand, depth int) M {
	if depth <= 0 {
		return scalarSchema(r)
	}
	switch r.Intn(11) {
	case 0, 1:
		return scalarSchema(r)
	case 2, 3:
		return objSchema(r, depth)
	case 4:
		s := M{"type": "object", "additionalProperties": genSchema(r, depth-1)}
		if r.Intn(4) == 0 {
			s["x-kubernetes-map-type"] = "atomic"
		}
		return s
	case 5:
		s := M{"type": "array", "items": genSchema(r, depth-1)}
		if r.Intn(2) == 0 {
			s["x-kubernetes-list-type"] = "atomic"
		}
		return s
	case 6:
		return M{"type": "array", "items": M{"type": pick(r, "string", "string", "integer", "number")}, "x-kubernetes-list-type": "set"}
	case 7, 8:
		item := objSchema(r, depth)
		props := item["properties"].(M)
		delete(item, "x-kubernetes-map-type")
		props["a"] = M{"type": pick(r, "string", "integer")}
		keys := L{"a"}
		item["required"] = L{"a"}
		if r.Intn(2) == 0 {
			keys = append(keys, "b")
			if r.Intn(2) == 0 {
				props["b"] = M{"type": "string", "default": "x"}
			} else {
				props["b"] = M{"type": "integer", "default": 1}
			}
		}
		if r.Intn(5) == 0 {
			item["x-kubernetes-map-type"] = "atomic"
		}
		return M{"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
	case 9:
		return M{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	case 10:
		if r.Intn(2) == 0 {
			return M{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true}
		}
		s := objSchema(r, depth)
		s["x-kubernetes-preserve-unknown-fields"] = true
		return s
	}
	panic("x")
}

// toggle changes list and map types.
func toggle(r *rand.Rand, s M) {
	if p, ok := s["properties"].(M); ok {
		for _, k := range sorted(p) {
			toggle(r, p[k].(M))
		}
	}
	if p, ok := s["additionalProperties"].(M); ok {
		toggle(r, p)
	}
	if p, ok := s["items"].(M); ok {
		toggle(r, p)
	}
	if s["type"] == "object" && s["x-kubernetes-embedded-resource"] == nil && r.Intn(4) == 0 {
		if s["x-kubernetes-map-type"] == "atomic" {
			delete(s, "x-kubernetes-map-type")
		} else {
			s["x-kubernetes-map-type"] = "atomic"
		}
	}
	if s["type"] == "array" && r.Intn(4) == 0 {
		switch s["x-kubernetes-list-type"] {
		case "set":
			s["x-kubernetes-list-type"] = "atomic"
		case "map":
			s["x-kubernetes-list-type"] = "atomic"
			delete(s, "x-kubernetes-list-map-keys")
		}
	}
}

// genSchemas returns the schemas of both versions, which differ in list and map
// types.
func genSchemas(r *rand.Rand) map[string]M {
	for {
		props := M{"spec": objSchema(r, 3)}
		delete(props["spec"].(M), "x-kubernetes-map-type")
		if r.Intn(2) == 0 {
			props["status"] = objSchema(r, 2)
		}
		if r.Intn(3) == 0 {
			props["data"] = genSchema(r, 2)
		}
		s := M{"type": "object", "properties": props}
		v2 := clone(s).(M)
		// numbers in defaults become int64
		toggle(r, v2)
		return map[string]M{"v1": clone(s).(M), "v2": v2}
	}
}
