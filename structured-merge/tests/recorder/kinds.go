package main

import (
	"fmt"
	"math/rand"
	"os"
	"strings"

	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	sigsyaml "sigs.k8s.io/yaml"
)

// smdGen makes random values of a merge schema.
type smdGen struct {
	r *rand.Rand
	s *smdschema.Schema
}

// value returns a value of the type.
func (g smdGen) value(tr smdschema.TypeRef, depth int) any {
	a, ok := g.s.Resolve(tr)
	if !ok {
		panic("unresolved")
	}
	r := g.r
	switch {
	case a.Map != nil:
		m := M{}
		if depth <= 0 {
			return m
		}
		for _, f := range a.Map.Fields {
			if r.Intn(len(a.Map.Fields)) < 4 {
				m[f.Name] = g.value(f.Type, depth-1)
			}
		}
		if len(a.Map.Fields) == 0 {
			for range r.Intn(3) {
				m[pick(r, names...)] = g.value(a.Map.ElementType, depth-1)
			}
		}
		return m
	case a.Scalar != nil:
		switch *a.Scalar {
		case smdschema.Numeric:
			return pick(r, 0, 1, 80)
		case smdschema.Boolean:
			return r.Intn(2) == 0
		}
		return pick(r, "x", "y")
	case a.List != nil:
		l, seen := L{}, map[string]bool{}
		if depth <= 0 {
			return l
		}
		for range r.Intn(3) {
			v := g.value(a.List.ElementType, depth-1)
			k := fmt.Sprint(v)
			if len(a.List.Keys) > 0 {
				m := v.(M)
				el, _ := g.s.Resolve(a.List.ElementType)
				k = ""
				for i, key := range a.List.Keys {
					f, _ := el.Map.FindField(key)
					if m[key] == nil && (i == 0 || r.Intn(2) == 0) {
						m[key] = g.value(f.Type, 0)
					}
					if m[key] == nil {
						k += fmt.Sprint(f.Default) + ","
					} else {
						k += fmt.Sprint(m[key]) + ","
					}
				}
			}
			if a.List.ElementRelationship == smdschema.Associative {
				if seen[k] {
					continue
				}
				seen[k] = true
			}
			l = append(l, v)
		}
		return l
	}
	panic("atom")
}

// builtinCases records the table of some kinds, and operations on their objects.
func builtinCases(file string) L {
	b, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	text := string(b)
	text = text[strings.Index(text, "YAMLObject(`")+len("YAMLObject(`"):]
	text = text[:strings.Index(text, "`)")]
	parser, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		panic(err)
	}
	var table M
	if err := sigsyaml.Unmarshal([]byte(text), &table); err != nil {
		panic(err)
	}
	kinds := []string{"io.k8s.api.apps.v1.Deployment", "io.k8s.api.core.v1.Service", "io.k8s.api.core.v1.ConfigMap", "io.k8s.api.networking.v1.Ingress"}
	byName := map[string]any{}
	for _, t := range table["types"].(L) {
		byName[t.(M)["name"].(string)] = t
	}
	reach := map[string]bool{}
	var visit func(v any)
	visit = func(v any) {
		switch t := v.(type) {
		case M:
			if n, ok := t["namedType"].(string); ok && !reach[n] {
				reach[n] = true
				visit(byName[n])
			}
			for _, x := range t {
				visit(x)
			}
		case L:
			for _, x := range t {
				visit(x)
			}
		}
	}
	for _, k := range kinds {
		reach[k] = true
		visit(byName[k])
	}
	types := L{}
	for _, t := range table["types"].(L) {
		if reach[t.(M)["name"].(string)] {
			types = append(types, t)
		}
	}
	out := L{M{"types": types}}
	for seed := range int64(60) {
		r := rand.New(rand.NewSource(seed))
		name := kinds[seed%4]
		pt := parser.Type(name)
		g := smdGen{r, &parser.Schema}
		lhs, rhs := clone(g.value(pt.TypeRef, 6)), clone(g.value(pt.TypeRef, 6))
		c := M{"type": name, "lhs": lhs, "rhs": rhs}
		l, err := pt.FromUnstructured(lhs)
		if err != nil {
			panic(err)
		}
		rr, err := pt.FromUnstructured(rhs)
		if err != nil {
			panic(err)
		}
		ls, _ := l.ToFieldSet()
		c["lhsSet"] = js(ls)
		cmp, err := l.Compare(rr)
		if err != nil {
			panic(err)
		}
		c["removed"], c["modified"], c["added"] = js(cmp.Removed), js(cmp.Modified), js(cmp.Added)
		m, err := l.Merge(rr)
		if err != nil {
			panic(err)
		}
		c["merged"] = m.AsValue().Unstructured()
		out = append(out, c)
	}
	return out
}

// openapiCases records the definitions of a kind, and operations on its objects.
func openapiCases() L {
	out := L{}
	for seed := range int64(6) {
		r := rand.New(rand.NewSource(seed + 9000))
		schemas := genSchemas(r)
		k := newKind(schemas)
		g := gen{r, false}
		c := M{"models": k.models}
		objs := L{}
		for range 10 {
			lhs, rhs := g.object("v1", schemas["v1"], true), g.object("v1", schemas["v1"], true)
			l, _ := k.typed(lhs)
			rr, _ := k.typed(rhs)
			if l == nil || rr == nil {
				continue
			}
			ls, _ := l.ToFieldSet()
			m, err := l.Merge(rr)
			if err != nil {
				panic(err)
			}
			objs = append(objs, M{"lhs": lhs, "rhs": rhs, "lhsSet": js(ls), "merged": m.AsValue().Unstructured()})
		}
		c["objects"] = objs
		out = append(out, c)
	}
	return out
}
