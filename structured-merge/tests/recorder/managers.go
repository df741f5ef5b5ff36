package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"sort"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// managerCase records the objects and errors of a random sequence of requests.
func managerCase(seed int64) M {
	r := rand.New(rand.NewSource(seed))
	schemas := genSchemas(r)
	k := newKind(schemas)
	g := gen{r, false}
	wild := gen{r, true}
	many := r.Intn(12) == 0
	steps := 4 + r.Intn(5)
	if many {
		steps = 30
	}
	var live M
	ops := L{}
	for step := range steps {
		version := "v1"
		if r.Intn(5) == 0 {
			version = "v2"
		}
		sub := ""
		if live != nil && r.Intn(6) == 0 {
			sub = "status"
		}
		mgr := pick(r, "m1", "m2", "m3", "kubectl", "m1")
		if r.Intn(25) == 0 {
			mgr = pick(r, "", "a \"b\"<", "m1 x")
		}
		gg := g
		if r.Intn(8) == 0 {
			gg = wild
		}
		op := M{"version": version, "subresource": sub}
		fm := k.manager(version, sub)
		now := live
		if now == nil {
			now = M{"apiVersion": group + "/" + version, "kind": "Widget"}
		}
		typ := "apply"
		if r.Intn(2) == 0 {
			typ = "update"
		}
		if many && r.Intn(8) > 0 {
			typ = "update"
			mgr = fmt.Sprintf("u%02d", step)
		}
		op["type"], op["manager"] = typ, mgr
		var run func() (runtime.Object, error)
		if typ == "update" {
			n := gg.object(version, schemas[version], true)
			if live != nil {
				// Change some fields of the live object.
				base := clone(live).(M)
				for _, key := range sorted(n) {
					if many && key == "metadata" {
						continue
					}
					if r.Intn(2) == 0 || key == "apiVersion" {
						switch key {
						case "metadata":
							for _, f := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
								delete(base["metadata"].(M), f)
								if v, ok := n["metadata"].(M)[f]; ok {
									base["metadata"].(M)[f] = v
								}
							}
						case "spec":
							bs, ok := base["spec"].(M)
							ns, ok2 := n["spec"].(M)
							if ok && ok2 {
								for _, f := range sorted(ns) {
									bs[f] = ns[f]
								}
								if len(bs) > 0 && r.Intn(3) == 0 {
									delete(bs, sorted(bs)[r.Intn(len(bs))])
								}
							} else {
								base["spec"] = n["spec"]
							}
						default:
							base[key] = n[key]
						}
					}
				}
				n = base
				meta := n["metadata"].(M)
				if many {
					l, _ := meta["labels"].(M)
					if l == nil {
						l = M{}
					}
					l[mgr] = "1"
					meta["labels"] = l
				}
				tamper := r.Intn(14)
				if many {
					tamper = 13
				}
				switch tamper {
				case 0, 1:
					delete(meta, "managedFields")
				case 2:
					meta["managedFields"] = L{}
				case 3:
					meta["managedFields"] = L{M{}}
				case 4:
					l, _ := meta["managedFields"].(L)
					meta["managedFields"] = append(l, M{"manager": "old", "operation": "Update", "apiVersion": group + "/v0", "fieldsType": "FieldsV1", "fieldsV1": M{"f:spec": M{"f:a": M{}}}})
				case 5:
					l, _ := meta["managedFields"].(L)
					meta["managedFields"] = append(l, M{"manager": "bad", "operation": pick(r, "Update", "Other"), "apiVersion": group + "/v1", "fieldsType": pick(r, "FieldsV2", "")})
				case 6:
					if l, _ := meta["managedFields"].(L); len(l) > 0 {
						meta["managedFields"] = l[1:]
					}
				}
				if r.Intn(10) == 0 {
					an, _ := meta["annotations"].(M)
					if an == nil {
						an = M{}
					}
					cfg := g.object(version, schemas[version], false)
					if r.Intn(4) > 0 {
						cfg["spec"] = clone(n["spec"])
						cfg["metadata"] = M{"name": "w", "namespace": "ns"}
						delete(cfg, "status")
						delete(cfg, "data")
					}
					if cfg["spec"] == nil {
						delete(cfg, "spec")
					}
					b, _ := json.Marshal(cfg)
					an["kubectl.kubernetes.io/last-applied-configuration"] = string(b)
					meta["annotations"] = an
				}
			}
			n = clone(n).(M)
			op["object"] = clone(n)
			run = func() (runtime.Object, error) { return fm.Update(obj(now), obj(n), mgr) }
		} else {
			cfg := clone(gg.object(version, schemas[version], false)).(M)
			force := r.Intn(3) == 0
			if r.Intn(30) == 0 {
				cfg["kind"] = "Gadget"
			}
			if r.Intn(40) == 0 {
				cfg["metadata"].(M)["managedFields"] = L{}
			}
			op["object"], op["force"] = clone(cfg), force
			run = func() (runtime.Object, error) { return fm.Apply(obj(now), obj(cfg), mgr, force) }
		}
		out, err := run()
		if err != nil {
			if status, ok := err.(*apierrors.StatusError); ok && status.ErrStatus.Details != nil {
				op["error"] = status.ErrStatus.Message
				causes := []string{}
				for _, c := range status.ErrStatus.Details.Causes {
					causes = append(causes, c.Field+": "+c.Message)
				}
				sort.Strings(causes)
				op["causes"] = causes
			} else {
				op["error"] = stable(func() string {
					_, err := run()
					if err == nil {
						panic("no error")
					}
					return err.Error()
				})
			}
		} else {
			o := clone(out.(*unstructured.Unstructured).Object).(M)
			mask(o, step)
			op["result"] = clone(o)
			// Store as v1 with a uid.
			o["apiVersion"] = group + "/v1"
			o["metadata"].(M)["uid"] = "1"
			if len(o["metadata"].(M)) > 0 && r.Intn(25) == 0 {
				// An object from before the tracking of fields.
				delete(o["metadata"].(M), "managedFields")
				op["untracked"] = true
			}
			live = o
		}
		ops = append(ops, op)
	}
	return M{"schemas": schemas, "ops": ops}
}

// mask replaces the times of this run.
func mask(o M, step int) {
	meta, ok := o["metadata"].(M)
	if !ok {
		return
	}
	mf, ok := meta["managedFields"].(L)
	if !ok {
		return
	}
	for _, e := range mf {
		m := e.(M)
		if t, ok := m["time"].(string); ok && t >= "2022" {
			m["time"] = stepTime(step)
		}
	}
}

// stepTime returns the time of a step.
func stepTime(step int) string {
	return time.Date(2020, 1, 1, 0, step, 0, 0, time.UTC).Format(time.RFC3339)
}
