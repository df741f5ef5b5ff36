package main

import (
	"encoding/json"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// kind is a custom resource. Its conversion only changes apiVersion.
type kind struct {
	schemas map[string]M
	models  map[string]*spec.Schema
	conv    managedfields.TypeConverter
}

// newKind converts the schemas like the API server converts those of a CRD.
func newKind(schemas map[string]M) *kind {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "widgets." + group
	crd.Spec.Group = group
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	crd.Spec.Scope = apiextensionsv1.NamespaceScoped
	vs := []string{}
	for v := range schemas {
		vs = append(vs, v)
	}
	sort.Strings(vs)
	for i, v := range vs {
		props := &apiextensionsv1.JSONSchemaProps{}
		b, _ := json.Marshal(schemas[v])
		if err := json.Unmarshal(b, props); err != nil {
			panic(err)
		}
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}})
	}
	models := map[string]*spec.Schema{}
	for _, v := range vs {
		s, err := builder.BuildOpenAPIV3(crd, v, builder.Options{})
		if err != nil {
			panic(err)
		}
		for n, m := range s.Components.Schemas {
			models[n] = m
		}
		if m := models["com.example."+v+".Widget"]; m == nil || len(m.Properties) < 3 {
			b, _ := json.Marshal(schemas[v])
			panic("not structural: " + string(b))
		}
	}
	c, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		panic(err)
	}
	return &kind{schemas, models, c}
}

func (k *kind) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	v := gv.(schema.GroupVersion)
	if k.schemas[v.Version] == nil {
		return nil, runtime.NewNotRegisteredErrForKind("x", v.WithKind("Widget"))
	}
	out := in.DeepCopyObject().(*unstructured.Unstructured)
	out.SetAPIVersion(v.String())
	return out, nil
}

func (k *kind) Convert(in, out, context interface{}) error { panic("unused") }

func (k *kind) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	panic("unused")
}

func (k *kind) Default(runtime.Object) {}

func (k *kind) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: M{}}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// typed returns the typed object, or the text of the error.
func (k *kind) typed(o any, opts ...typed.ValidationOptions) (*typed.TypedValue, string) {
	t, err := k.conv.ObjectToTyped(obj(o), opts...)
	if err != nil {
		return nil, stable(func() string {
			_, err := k.conv.ObjectToTyped(obj(o), opts...)
			return err.Error()
		})
	}
	return t, ""
}

// manager returns the field manager of an endpoint, with its reset fields.
func (k *kind) manager(version, sub string) *managedfields.FieldManager {
	gv := schema.GroupVersion{Group: group, Version: version}
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for v := range k.schemas {
		s := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		if sub == "status" {
			s = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
		}
		reset[fieldpath.APIVersion(group+"/"+v)] = s
	}
	fm, err := managedfields.NewDefaultCRDFieldManager(k.conv, k, k, k, gv.WithKind("Widget"), gv, sub, fieldpath.NewExcludeFilterSetMap(reset))
	if err != nil {
		panic(err)
	}
	return fm
}
