package main

import (
	"math/rand"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// subset returns a random half of a set.
func subset(r *rand.Rand, s *fieldpath.Set) *fieldpath.Set {
	out := fieldpath.NewSet()
	s.Iterate(func(p fieldpath.Path) {
		if r.Intn(2) == 0 {
			out.Insert(p.Copy())
		}
	})
	return out
}

// typedCase records all operations on two objects.
func typedCase(seed int64) M {
	r := rand.New(rand.NewSource(seed))
	schemas := genSchemas(r)
	k := newKind(schemas)
	g := gen{r, r.Intn(3) == 0}
	lhs := g.object("v1", schemas["v1"], true)
	rhs := g.object("v1", schemas["v1"], true)
	c := M{"schemas": schemas, "lhs": lhs, "rhs": rhs}
	_, c["lhsError"] = k.typed(lhs)
	_, c["rhsError"] = k.typed(rhs)
	l, e := k.typed(lhs, typed.AllowDuplicates)
	c["lhsErrorWithDuplicates"] = e
	rr, e := k.typed(rhs, typed.AllowDuplicates)
	c["rhsErrorWithDuplicates"] = e
	if l == nil || rr == nil {
		return c
	}
	ls, err := l.ToFieldSet()
	if err != nil {
		panic(err)
	}
	rs, err := rr.ToFieldSet()
	if err != nil {
		panic(err)
	}
	c["lhsSet"], c["rhsSet"] = js(ls), js(rs)
	if cmp, err := l.Compare(rr); err != nil {
		c["compareError"] = stable(func() string { _, err := l.Compare(rr); return err.Error() })
	} else {
		c["removed"], c["modified"], c["added"] = js(cmp.Removed), js(cmp.Modified), js(cmp.Added)
	}
	if m, err := l.Merge(rr); err != nil {
		c["mergeError"] = stable(func() string { _, err := l.Merge(rr); return err.Error() })
	} else {
		c["merged"] = m.AsValue().Unstructured()
	}
	sub := subset(r, ls.Union(rs))
	c["items"] = js(sub)
	c["without"] = l.RemoveItems(sub).AsValue().Unstructured()
	c["only"] = l.ExtractItems(sub).AsValue().Unstructured()
	c["onlyLeaves"] = l.ExtractItems(sub.Leaves()).AsValue().Unstructured()
	c["onlyWithKeys"] = l.ExtractItems(sub.Leaves(), typed.WithAppendKeyFields()).AsValue().Unstructured()
	// Set operations.
	sub2 := subset(r, ls.Union(rs))
	c["other"] = js(sub2)
	c["union"] = js(sub.Union(sub2))
	c["intersection"] = js(sub.Intersection(sub2))
	c["difference"] = js(sub.Difference(sub2))
	c["recursiveDifference"] = js(sub.RecursiveDifference(sub2))
	c["leaves"] = js(sub.Leaves())
	// Patterns.
	patterns := L{}
	matchers := []*fieldpath.SetMatcher{}
	all := []fieldpath.Path{}
	ls.Union(rs).Iterate(func(p fieldpath.Path) { all = append(all, p.Copy()) })
	for range 1 + r.Intn(3) {
		p := all[r.Intn(len(all))]
		steps, parts := L{}, []interface{}{}
		for _, pe := range p[:1+r.Intn(len(p))] {
			if r.Intn(3) == 0 {
				steps, parts = append(steps, nil), append(parts, fieldpath.MatchAnyPathElement())
			} else {
				w, err := fieldpath.SerializePathElement(pe)
				if err != nil {
					panic(err)
				}
				steps, parts = append(steps, w), append(parts, pe)
			}
		}
		m, err := fieldpath.PrefixMatcher(parts...)
		if err != nil {
			panic(err)
		}
		patterns, matchers = append(patterns, steps), append(matchers, m)
	}
	c["patterns"] = patterns
	c["included"] = js(fieldpath.NewIncludeMatcherFilter(matchers...).Filter(ls.Union(rs)))
	// A set of v2 with the schema of v1 and the reverse.
	lhs2 := clone(lhs).(M)
	lhs2["apiVersion"] = group + "/v2"
	if l2, _ := k.typed(lhs2, typed.AllowDuplicates); l2 != nil {
		set2, err := l2.ToFieldSet()
		if err != nil {
			panic(err)
		}
		c["v2Set"] = js(set2)
		if s, err := typed.ReconcileFieldSetWithSchema(set2, l); err != nil {
			panic(err)
		} else if s != nil {
			c["reconciled"] = js(s)
		}
		if s, err := typed.ReconcileFieldSetWithSchema(ls, l2); err != nil {
			panic(err)
		} else if s != nil {
			c["reconciledToV2"] = js(s)
		}
	}
	return c
}
