package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

const fieldManager = "lab"

// Apply applies the YAML documents of manifests in their order, as an administrator
// and by server-side apply, taking over what others own. It waits for the kinds that
// the documents define. It may be repeated.
func (c *Cluster) Apply(ctx context.Context, manifests []byte) error {
	return c.each(ctx, "applying", manifests, func(client dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := client.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil || obj.GetKind() != "CustomResourceDefinition" {
			return err
		}
		return established(ctx, client, obj.GetName())
	})
}

// Delete deletes the objects that the YAML documents of manifests name; it does not
// wait for their end. An object that is gone is no error.
func (c *Cluster) Delete(ctx context.Context, manifests []byte) error {
	background := metav1.DeletePropagationBackground
	return c.each(ctx, "deleting", manifests, func(client dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		err := client.Delete(ctx, obj.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// each calls f with the client and the content of each document, until the first error.
func (c *Cluster) each(ctx context.Context, doing string, manifests []byte, f func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	objects, err := parseManifests(manifests)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client().Discovery()))
	for _, obj := range objects {
		gvk := obj.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("looking for the kind of %s %s: %w", gvk.Kind, obj.GetName(), err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := obj.GetNamespace()
			setDefault(&namespace, metav1.NamespaceDefault)
			resource = client.Resource(mapping.Resource).Namespace(namespace)
		}
		if err := f(resource, obj); err != nil {
			return fmt.Errorf("%s %s %s/%s in cluster %s: %w", doing, gvk.Kind, obj.GetNamespace(), obj.GetName(), c.Name, err)
		}
	}
	return nil
}

func established(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	return Eventually(ctx, func(ctx context.Context) error {
		crd, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, each := range conditions {
			if condition, ok := each.(map[string]any); ok && condition["type"] == "Established" && condition["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("%s is not established", name)
	})
}

// parseManifests reads YAML documents; empty ones are skipped and lists taken apart.
func parseManifests(manifests []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("splitting the manifests: %w", err)
		}
		content := map[string]any{}
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("parsing document %d of the manifests: %w", number, err)
		}
		if len(content) == 0 {
			continue
		}
		obj := &unstructured.Unstructured{Object: content}
		if obj.GetKind() == "" || obj.GetAPIVersion() == "" {
			return nil, fmt.Errorf("document %d of the manifests has no kind or no apiVersion", number)
		}
		if !obj.IsList() {
			objects = append(objects, obj)
			continue
		}
		err = obj.EachListItem(func(item runtime.Object) error {
			objects = append(objects, item.(*unstructured.Unstructured))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("taking apart the list in document %d: %w", number, err)
		}
	}
}
