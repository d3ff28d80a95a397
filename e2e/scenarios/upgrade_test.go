package scenarios

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// lastRelease is the file with the commit of the last release, which clusters are upgraded from.
const lastRelease = "testdata/last-release"

func releasedCommit(t *testing.T) string {
	t.Helper()
	commit, err := os.ReadFile(lastRelease)
	require.NoError(t, err)
	return strings.TrimSpace(string(commit))
}

// TestBuilds builds what the other tests run: with limits of time, they cannot wait for a compiler, or for a download.
func TestBuilds(t *testing.T) {
	require.NoError(t, lab.BuildTools(t.Context(), t.Logf))
	require.NoError(t, site.Build(t.Context(), t.TempDir(), releasedCommit(t), t.Logf))
	if len(lab.FullTierMissing()) > 0 {
		return
	}
	t.Log("building the image of PostgreSQL")
	if _, err := lab.BuildPostgres(t.Context(), t.TempDir()); err != nil {
		t.Logf("TestPostgres skips or fails for it: %v", err)
	}
}

// upgraded is a world of the last release, on its way to the version of this tree.
type upgraded struct {
	*world
	last site.Version
	// before is what must not change, from before the first upgrade.
	before map[string]string
	steps  int
}

// TestUpgrade brings two clusters from the last release to the version of this tree, one after
// the other, and back, in either order. Pods are not touched at any step, and everything works
// between the steps, when the clusters have different versions.
func TestUpgrade(t *testing.T) {
	// The identity in milan is renewed each 6 s, so in each state.
	renewing := map[string]any{
		"peering":        map[string]any{"renewAt": 0.01},
		"authentication": map[string]any{"lifetime": "10m", "requestsPerAddress": 6000, "requestsPerMinute": 6000},
	}
	sites, list := site.World{Clusters: []string{"rome", "milan"}, Settings: []map[string]any{renewing}, Commit: releasedCommit(t)}.Start(t)
	w := &upgraded{world: &world{sites: sites, rome: list[0], milan: list[1]}, last: sites.Installs}
	w.join(t, "--token", w.token(t), "--pod-cidr", w.rome.Options.PodCIDR)
	w.start(t)

	w.bring(t, w.milan, sites.Tree, "the provider is new, the consumer old")
	w.bring(t, w.rome, sites.Tree, "both are new")
	if !*all {
		t.Logf("left to make test-all: %s: the way back, and the other order", t.Name())
		return
	}
	w.bring(t, w.rome, w.last, "the consumer is old again")
	w.bring(t, w.milan, w.last, "both are old again")
	w.bring(t, w.rome, sites.Tree, "the consumer is new, the provider old")
	w.bring(t, w.milan, w.last, "the provider is installed again")
	w.bring(t, w.milan, sites.Tree, "both are new, in the other order")
	w.bring(t, w.milan, w.last, "the provider is old again")
}

// start makes what has to outlive the upgrades.
func (w *upgraded) start(t *testing.T) {
	t.Helper()
	w.offload(t, "shop", offloadingv1beta1.NamespaceOffloadingSpec{})
	w.application(t, "shop", "web")
	w.bare(t, "shop", "alone", nil)
	within(t, longest, "the pod without an owner runs in milan", w.placed("shop", "alone", "milan"))
	within(t, longest, "the application runs", w.serves("shop", "web", 2))
	var err error
	w.before, err = w.identities(t.Context())
	require.NoError(t, err)
	require.Len(t, w.before, 7, "three pods in each cluster, and the twin namespace")
	w.works(t, "both are old")
}

// bring brings a cluster to a version, and looks at everything.
func (w *upgraded) bring(t *testing.T, s *site.Site, to site.Version, state string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*longest)
	defer cancel()
	begin := time.Now()
	require.NoError(t, s.Upgrade(ctx, to), state)
	t.Logf("%s is at %s: %s", s.Name, to.Tag, time.Since(begin).Round(time.Millisecond))
	w.works(t, state)
}

// identity returns what rome shows in milan.
func (w *upgraded) identity(ctx context.Context) (string, error) {
	secrets, err := w.rome.Client().CoreV1().Secrets(tenantOfMilan).List(ctx, metav1.ListOptions{LabelSelector: corev1beta1.IdentityTypeLabel})
	if err != nil {
		return "", err
	}
	if len(secrets.Items) != 1 {
		return "", fmt.Errorf("rome has %d identities in milan", len(secrets.Items))
	}
	return string(secrets.Items[0].Data["kubeconfig"]), nil
}

// works requires that nothing has changed, and that liqod does its work in this state.
func (w *upgraded) works(t *testing.T, state string) {
	t.Helper()
	w.steps++
	shown, err := w.identity(t.Context())
	require.NoError(t, err)
	name := fmt.Sprintf("step-%d", w.steps)
	for _, s := range []*site.Site{w.rome, w.milan} {
		within(t, longest, state+": "+s.Name+" is healthy", func(ctx context.Context) error {
			have, code, err := w.summary(ctx, s)
			if err == nil && (code != 0 || have.Health != "ok") {
				err = fmt.Errorf("status of %s ends with %d: %+v", s.Name, code, have)
			}
			return err
		})
	}
	within(t, longest, state+": the application answers", w.serves("shop", "web", 2))

	w.application(t, "shop", name)
	within(t, longest, state+": a new application answers", w.serves("shop", name, 2))
	w.patchConfigMap(t, "web", name)
	within(t, longest, state+": a change arrives", lab.Is(w.milan.Client().CoreV1().ConfigMaps("shop-rome"), "web", func(have *corev1.ConfigMap) bool {
		return have.Data["step"] == name
	}))
	w.withdraw(t, "shop", name)

	w.offload(t, name, offloadingv1beta1.NamespaceOffloadingSpec{})
	w.bare(t, name, "pod", nil)
	within(t, longest, state+": a pod of a new namespace runs in milan", w.placed(name, "pod", "milan"))

	within(t, longest, state+": the identity is renewed", func(ctx context.Context) error {
		have, err := w.identity(ctx)
		if err == nil && have == shown {
			err = fmt.Errorf("the identity of rome in milan is as it was")
		}
		return err
	})

	have, err := w.identities(t.Context())
	require.NoError(t, err)
	require.Equal(t, w.before, have, state+": a pod is another one, or was started again")
}

// identities are the UIDs and restart counts of the pods that have to outlive the upgrades, in
// both clusters, and the UID of their twin namespace.
func (w *upgraded) identities(ctx context.Context) (map[string]string, error) {
	twin, err := w.milan.Client().CoreV1().Namespaces().Get(ctx, "shop-rome", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	have := map[string]string{"twin": string(twin.UID)}
	for namespace, s := range map[string]*site.Site{"shop": w.rome, "shop-rome": w.milan} {
		pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			if strings.HasPrefix(pod.Name, "step-") {
				continue // of one step, and on its way out
			}
			restarts := int32(0)
			for _, c := range pod.Status.ContainerStatuses {
				restarts += c.RestartCount
			}
			have[s.Name+"/"+pod.Name] = fmt.Sprintf("%s, %d restarts, deleted: %t", pod.UID, restarts, pod.DeletionTimestamp != nil)
		}
	}
	return have, nil
}

// application makes a Deployment with all that is reflected for it, named the same.
func (w *upgraded) application(t *testing.T, namespace, name string) {
	t.Helper()
	c := w.rome.Client()
	kubetest.Create(t, c.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"step": "none"}})
	kubetest.Create(t, c.CoreV1().Secrets(namespace), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": "value"}})
	web := service(name, func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": name} })
	web.Annotations = map[string]string{"example.com/odd": "yes"} // one that providers leave out
	kubetest.Create(t, c.CoreV1().Services(namespace), web)
	kubetest.Create(t, c.NetworkingV1().Ingresses(namespace), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: maps.Clone(web.Annotations)},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: name + ".example.com", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}},
		}}}},
	})
	d := deployment(name, 2)
	d.Spec.Template.Annotations = maps.Clone(web.Annotations)
	d.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}},
	}
	kubetest.Create(t, c.AppsV1().Deployments(namespace), d)
}

// serves returns a condition: the Deployment is available in milan, everything that belongs
// to it is there, and its Service has as many ready endpoints in each cluster.
func (w *upgraded) serves(namespace, name string, want int32) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.available(name, namespace, want)(ctx); err != nil {
			return err
		}
		for in, s := range map[string]*site.Site{namespace: w.rome, namespace + "-rome": w.milan} {
			if err := present(ctx, s, in, name); err != nil {
				return err
			}
			ready, err := readyEndpoints(ctx, s, in, name)
			if err != nil {
				return err
			}
			if ready != int(want) {
				return fmt.Errorf("Service %s/%s in %s has %d ready endpoints, not %d", in, name, s.Name, ready, want)
			}
		}
		return nil
	}
}

// present returns an error if an object that application makes is not in a namespace.
func present(ctx context.Context, s *site.Site, namespace, name string) error {
	c := s.Client()
	if _, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	if _, err := c.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	if _, err := c.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	return second(c.NetworkingV1().Ingresses(namespace).Get(ctx, name, metav1.GetOptions{}))
}

func readyEndpoints(ctx context.Context, s *site.Site, namespace, service string) (int, error) {
	slices, err := s.Client().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return 0, err
	}
	ready := 0
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, false) {
				ready += len(e.Addresses)
			}
		}
	}
	return ready, nil
}

// withdraw deletes what application has made, and waits until its pods are gone from both
// clusters, and its Service and Ingress from milan.
func (w *upgraded) withdraw(t *testing.T, namespace, name string) {
	t.Helper()
	c, background := w.rome.Client(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	require.NoError(t, c.AppsV1().Deployments(namespace).Delete(t.Context(), name, background))
	require.NoError(t, c.CoreV1().Services(namespace).Delete(t.Context(), name, background))
	require.NoError(t, c.NetworkingV1().Ingresses(namespace).Delete(t.Context(), name, background))
	within(t, longest, name+" is gone", func(ctx context.Context) error {
		for in, s := range map[string]*site.Site{namespace: w.rome, namespace + "-rome": w.milan} {
			pods, err := s.Client().CoreV1().Pods(in).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
			if err != nil {
				return err
			}
			if n := meta.LenList(pods); n > 0 {
				return fmt.Errorf("%d pods of %s are left in %s", n, name, s.Name)
			}
		}
		if err := absent(w.milan.Client().CoreV1().Services(namespace+"-rome").Get(ctx, name, metav1.GetOptions{})); err != nil {
			return err
		}
		return absent(w.milan.Client().NetworkingV1().Ingresses(namespace+"-rome").Get(ctx, name, metav1.GetOptions{}))
	})
}

func (w *upgraded) patchConfigMap(t *testing.T, name, step string) {
	t.Helper()
	kubetest.Patch(t, w.rome.Client().CoreV1().ConfigMaps("shop"), name, types.MergePatchType, []byte(fmt.Sprintf(`{"data":{"step":%q}}`, step)))
}
