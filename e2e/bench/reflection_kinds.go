package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	// stepLabel names the step that wrote an object last.
	stepLabel = "bench-step"
	// objectBytes is the size of the data of a ConfigMap and a Secret.
	objectBytes = 512
)

// objectKind is a kind of objects that is reflected.
type objectKind struct {
	name     string // as the settings call it
	kind     string
	resource schema.GroupVersionResource
	written  string // the resource that liqod writes in the provider
	// content is JSON beside the metadata, with %[1]d for the version.
	content string
}

func objectKinds() []objectKind {
	core, data := corev1.SchemeGroupVersion, `{"v":"%[1]d","content":"`+strings.Repeat("c", objectBytes)+`"}`
	ports := `"ports":[{"name":"p","port":%[1]d,"protocol":"TCP"}]`
	return []objectKind{
		{"configmap", "ConfigMap", core.WithResource("configmaps"), "configmaps", `"data":` + data},
		{"secret", "Secret", core.WithResource("secrets"), "secrets", `"stringData":` + data},
		// Without a selector: only liqod acts on them.
		{"service", "Service", core.WithResource("services"), "services", `"spec":{` + ports + `}`},
		{"endpointslice", "EndpointSlice", discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "shadowendpointslices",
			`"addressType":"IPv4","endpoints":[{"addresses":["10.100.200.1"]},{"addresses":["10.100.200.2"]}],` + ports},
	}
}

// object is JSON of an object as a step leaves it. The label of the Service is for EndpointSlices.
func (k objectKind) object(step, name string) []byte {
	version := map[string]int{stepCreate: 1, stepUpdate: 2}[step]
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{%q:%q,%q:%q}},%s}`, k.resource.GroupVersion(), k.kind, name,
		stepLabel, step, discoveryv1.LabelServiceName, serviceName, fmt.Sprintf(k.content, version))
}

// send creates an object, changes it or deletes it.
func (k objectKind) send(ctx context.Context, c dynamic.Interface, namespace, step, name string) (err error) {
	objects := c.Resource(k.resource).Namespace(namespace)
	switch step {
	case stepCreate:
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(k.object(step, name)); err != nil {
			return err
		}
		_, err = objects.Create(ctx, o, metav1.CreateOptions{})
	case stepUpdate:
		_, err = objects.Patch(ctx, name, types.MergePatchType, k.object(step, name), metav1.PatchOptions{})
	default:
		err = objects.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return err
}
