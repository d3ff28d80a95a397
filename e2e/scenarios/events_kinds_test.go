package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// withTwin is an object here with what stands for it in the provider.
type withTwin struct {
	home, remote *unstructured.Unstructured
}

// withTwin returns the objects of a name of every kind, and the ConfigMap that has another
// name in the provider.
func (s kindsFixture) withTwin(t *testing.T, name string) []withTwin {
	t.Helper()
	var out []withTwin
	for _, r := range rows() {
		out = append(out, s.twinOf(t, r.local, name, name))
		if r.resource == "configmap" {
			out = append(out, s.twinOf(t, r.local, "kube-root-ca.crt", "kube-root-ca.crt.rome"))
		}
	}
	return out
}

func (s kindsFixture) twinOf(t *testing.T, resource schema.GroupVersionResource, name, remoteName string) withTwin {
	t.Helper()
	home := must(s.home.Resource(resource).Namespace(s.namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
	remote := must(s.remote.Resource(resource).Namespace(s.twin).Get(t.Context(), remoteName, metav1.GetOptions{}))(t)
	return withTwin{home, remote}
}

// reportOf has the provider say something of an object.
func (c *fixture) reportOf(t *testing.T, component string, about *unstructured.Unstructured) {
	t.Helper()
	e := c.remoteEvent(component+"-"+strings.ToLower(about.GetKind())+"-"+about.GetName(), &corev1.Pod{})
	e.Source.Component, e.InvolvedObject = component, referenceTo(about)
	c.report(t, e)
}

func referenceTo(u *unstructured.Unstructured) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}
}

// eventsAbout looks for one event of a component about each of the objects here.
func (c *fixture) eventsAbout(all []withTwin, component string) func(context.Context) error {
	return func(ctx context.Context) error {
		var errs []error
		for _, o := range all {
			list, err := c.rome.Client().CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{
				FieldSelector: fmt.Sprintf("source=%s%s,involvedObject.uid=%s", component, remoteSuffix, o.home.GetUID()),
			})
			if err == nil && (len(list.Items) != 1 || list.Items[0].InvolvedObject != referenceTo(o.home)) {
				err = fmt.Errorf("the events about %s %s are %v", o.home.GetKind(), o.home.GetName(), list.Items)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
}

// testEventKinds: what the provider says of reflected objects that are no pods is told of
// those here, and not what it says of its own that has the name of one.
func testEventKinds(t *testing.T, w *world) {
	c := w.fixture(t, "kinds")
	s := w.kindsFixture(t, "kinds")
	configMap := rows()[0]
	theirs, err := s.remote.Resource(configMap.local).Namespace(s.twin).Create(t.Context(), configMap.foreign("own", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.home.Resource(configMap.local).Namespace(s.namespace).Create(t.Context(), configMap.object("own", 2, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	s.create(t, "app", 1, nil)
	within(t, quickly, "reflected", s.shows("app", 1))
	all := s.withTwin(t, "app")
	c.reportOf(t, "operator", theirs)
	for _, o := range all {
		c.reportOf(t, "operator", o.remote)
	}
	within(t, 30*time.Second, "told of each", c.eventsAbout(all, "operator"))
	list := kubetest.List(t, w.rome.Client().CoreV1().Events(c.namespace), metav1.ListOptions{
		FieldSelector: "source=operator" + remoteSuffix + ",involvedObject.name=own",
	})
	require.Empty(t, list.Items)
}

// testEventKindsMissed: what the provider said of such objects while no vkubelet ran is
// told by the next one, which does not reflect them before it holds a Lease.
func testEventKindsMissed(t *testing.T, w *world) {
	c := &fixture{world: w, namespace: "kinds", twin: "kinds-rome"}
	all := w.kindsFixture(t, "kinds").withTwin(t, "app")
	vk := w.rome.VKubelet("milan")
	(*vk).Kill()
	for _, o := range all {
		c.reportOf(t, "missed", o.remote)
	}
	require.NoError(t, w.sites.Restart(vk))
	within(t, 30*time.Second, "told of each", c.eventsAbout(all, "missed"))
}

// unheard requires that no event of some components comes home.
func (c *fixture) unheard(t *testing.T, pod *corev1.Pod, names ...string) {
	t.Helper()
	hold(t, 2*time.Second, fmt.Sprintf("%v stay in the provider", names), func(ctx context.Context) error {
		for _, name := range names {
			if list, err := c.reported(ctx, pod, "kubelet-of-"+name+remoteSuffix); err != nil || len(list) > 0 {
				return fmt.Errorf("the events of %s are %v: %w", name, list, err)
			}
		}
		return nil
	})
}

// testEventPolicy: the policy, and whether events are reflected at all, may change; what
// happened while they were not is told when they are again.
func testEventPolicy(t *testing.T, c *fixture, pod *corev1.Pod) {
	report := func(name string, annotations ...string) {
		e := c.remoteEvent(name, c.remote(t, "web"))
		e.Annotations = map[string]string{}
		for _, key := range annotations {
			e.Annotations[key] = "true"
		}
		c.report(t, e)
	}
	told := func(name, what string) {
		c.untilEvent(t, pod, "kubelet-of-"+name+remoteSuffix, what, func(corev1.Event) bool { return true })
	}
	report("skipped", offloadingv1beta1.SkipReflectionAnnotation)
	report("contradicted", offloadingv1beta1.SkipReflectionAnnotation, offloadingv1beta1.AllowReflectionAnnotation)
	report("plain")
	told("plain", "what is not denied is told")
	c.unheard(t, pod, "skipped", "contradicted")

	restore := c.vkubeletArgs(t, "--reflection.event.type=AllowList")
	report("unasked")
	report("allowed", offloadingv1beta1.AllowReflectionAnnotation)
	told("allowed", "what is allowed is told")
	told("plain", "what was told stays")
	c.unheard(t, pod, "unasked", "skipped", "contradicted")

	c.vkubeletArgs(t, "--reflection.event.workers=0")
	c.runs(t, "unreported")
	report("off", offloadingv1beta1.AllowReflectionAnnotation)
	c.unheard(t, pod, "off")

	restore()
	told("off", "what happened while events were not reflected")
	report("later")
	told("later", "under the first policy all is told again")
	c.unheard(t, pod, "skipped", "contradicted")
}
