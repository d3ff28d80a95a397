package scenarios

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// fullWorld is a world of real nodes: liqod runs as pods of its image.
type fullWorld struct {
	world
	full *lab.Full
}

// newFullWorld starts rome with one real node and milan with two, installs liqod with more
// settings and connects them. Where that is not possible the test is skipped, and in CI it fails.
func newFullWorld(t *testing.T, settings map[string]any) *fullWorld {
	t.Helper()
	sites, list := site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{1, 2}, Settings: []map[string]any{settings},
		Adjust: func(o *lab.ClusterOptions) {
			o.Audit = false
			o.ControllerManagerArgs = []string{"--horizontal-pod-autoscaler-sync-period", "3s",
				"--horizontal-pod-autoscaler-initial-readiness-delay", "1s", "--horizontal-pod-autoscaler-cpu-initialization-period", "1s"}
		},
	}.Start(t)
	w := &fullWorld{world{sites: sites, rome: list[0], milan: list[1]}, sites.Full}
	t.Cleanup(func() { site.LogPods(t, list...) })
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	begin := time.Now()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{
		ExtraArgs: []string{"--vkubelet.homeAPIServer=" + strings.TrimPrefix(w.rome.APIServer, "https://")},
	}))
	t.Logf("virtual node Ready: %s", time.Since(begin).Round(time.Millisecond))
	return w
}

// testSpec is the spec of a pod of the lab's test image.
func testSpec(grace int64, command ...string) corev1.PodSpec {
	return corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
		Name: "c", Image: lab.TestImage, ImagePullPolicy: corev1.PullNever, Command: command,
	}}}
}

// webDeployment is a Deployment of the test image's server.
func webDeployment(name string, replicas int32) *appsv1.Deployment {
	d := deployment(name, replicas)
	d.Spec.Template.Spec = testSpec(5, "serve")
	return d
}

func TestFull(t *testing.T) {
	w := newFullWorld(t, map[string]any{
		"peering":        map[string]any{"renewAt": 0.02}, // of 10 minutes: each 12 s
		"authentication": map[string]any{"lifetime": "10m"},
		"sharing":        map[string]any{"serviceFields": []string{"nodePort"}},
	})
	// The last four disturb the cluster that the others use.
	inTurn(t, w, []part[*fullWorld]{
		{"Deployment across both", fullDeployment}, {"page", fullPage}, {"reflection", fullReflection}, {"logs and exec", fullLogsAndExec}, {"Jobs", fullJobs},
		{"restarts are counted", fullRestarts}, {"grace", fullGrace}, {"tokens", fullTokens}, {"features of pods", fullFeatures}, {"what a pod names", fullNamed},
		{"kubectl", fullKubectl}, {"anti-affinity", fullApart}, {"zones", fullZones}, {"hundreds of streams", fullStreams}, {"renewal", fullRenewal}, {"top and autoscaling", fullTop}, {"storage", fullStorage},
		{"vkubelet pod deleted", fullVKubeletDeleted}, {"node of the provider dies", fullNodeDies},
		{"node failure controller", fullNodeFailure},
	})
}

// fullNamed: pods that are bound to the virtual node before their namespace is offloaded, with 300
// ConfigMaps of 20 kB, report what they wait for. Then they have the variables of a ConfigMap that they
// could start without, and those of the Service.
func fullNamed(t *testing.T, w *fullWorld) {
	const namespace, pods = "crowd", 5
	ctx, core := t.Context(), w.rome.Client().CoreV1()
	w.plainNamespace(t, namespace)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	kubetest.Create(t, core.Services(namespace), service)
	for i := range 300 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)}, Data: map[string]string{"text": strings.Repeat("x", 20_000)}}
		kubetest.Create(t, core.ConfigMaps(namespace), cm)
	}
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "wanted"}, Data: map[string]string{"COLOUR": "blue"}}
	kubetest.Create(t, core.ConfigMaps(namespace), wanted)
	spec := testSpec(1, "pause")
	spec.NodeName, spec.Tolerations = w.milan.Name, anyTaint()
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "wanted"}, Optional: new(true)}}}
	for i := range pods {
		name := fmt.Sprintf("early-%d", i)
		w.run(t, namespace, name, spec)
		pod := untilPod(t, w.rome, time.Minute, namespace, name, "waits", func(p *corev1.Pod) bool { return p.Status.Reason == offloadingv1beta1.ReasonOffloadingBackOff })
		require.Contains(t, pod.Status.Message, "namespace crowd is not offloaded to cluster milan: create a NamespaceOffloading that selects it, or keep the pod off virtual nodes")
	}
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	for i := range pods {
		name := fmt.Sprintf("early-%d", i)
		within(t, 2*time.Minute, name+" is Ready", w.podReady(namespace, name))
		env := must(w.rome.Exec(ctx, namespace, name, "env"))(t)
		require.Contains(t, env, "COLOUR=blue", name)
		require.Contains(t, env, "SHOP_SERVICE_PORT=80", name)
	}
}

// fullTokens shows that a client in an offloaded pod reaches its own API server, as any
// client in a cluster does, with the rights of its service account and no more.
func fullTokens(t *testing.T, w *fullWorld) {
	w.offload(t, "office", offloadingv1beta1.NamespaceOffloadingSpec{})
	home := w.rome.Client()
	kubetest.Create(t, home.CoreV1().ServiceAccounts("office"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "clerk"}})
	kubetest.Create(t, home.RbacV1().Roles("office"), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "clerk"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}})
	kubetest.Create(t, home.RbacV1().RoleBindings("office"), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "clerk"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clerk"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "clerk", Namespace: "office"}}})
	spec := testSpec(1, "pause")
	spec.ServiceAccountName = "clerk"
	w.run(t, "office", "worker", spec)
	within(t, time.Minute, "the pod is Ready", w.podReady("office", "worker"))
	pod := kubetest.Get(t, home.CoreV1().Pods("office"), "worker")
	within(t, 20*time.Second, "it reads itself at home", func(ctx context.Context) error {
		have, err := parsed[corev1.Pod](w.rome.Exec(ctx, "office", "worker", "api", "api/v1/namespaces/NAMESPACE/pods/worker"))
		return lab.Wrong(err, have.UID != pod.UID, "it is pod %s/%s", have.Namespace, have.Name)
	})
	_, err := w.rome.Exec(t.Context(), "office", "worker", "api", "api/v1/namespaces/NAMESPACE/secrets")
	require.Error(t, err, "its account may not read Secrets")
}

// fullRenewal lets milan use rome, too, by a token: a log that is followed and a session
// that is held there go on while the certificates are renewed.
func fullRenewal(t *testing.T, w *fullWorld) {
	back := &fullWorld{world: world{sites: w.sites, rome: w.milan, milan: w.rome}, full: w.full}
	home := w.milan.Client().CoreV1()
	kubetest.Create(t, home.Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "archive"}})
	for _, args := range [][]string{
		{"peer", "--timeout=2m", "--token", tokenOf(t, w.sites, w.rome), "--cpu=200m", "--memory=256Mi"},
		{"offload", "namespace", "archive", "--pod-offloading-strategy=Remote"},
	} {
		w.done(t, w.milan, args...)
	}
	back.run(t, "archive", "lines", testSpec(1, "lines", "100000", "50ms"))
	within(t, time.Minute, "the pod is Ready", back.podReady("archive", "lines"))

	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	log, err := home.Pods("archive").GetLogs("lines", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	require.NoError(t, err)
	defer log.Close()
	input, typed := io.Pipe()
	defer typed.Close()
	said, failed := "", make(chan error, 1)
	go func() {
		var err error
		said, err = w.milan.Kubectl(ctx, lab.KubectlOptions{Stdin: input}, "-n", "archive", "exec", "-i", "lines", "--", "cat")
		failed <- err
	}()
	_, err = io.WriteString(typed, "before\n")
	require.NoError(t, err)

	begin, lines, identities := time.Now(), bufio.NewScanner(log), map[string]bool{}
	for n := 1; len(identities) < 4; n++ {
		require.True(t, lines.Scan(), "the log ended at line %d, after %d identities: %v", n, len(identities), lines.Err())
		require.Equal(t, fmt.Sprintf("line %d", n), lines.Text())
		if n%20 > 0 {
			continue
		}
		secret := must(home.Secrets(corev1beta1.TenantNamespace("rome")).Get(ctx, "rome", metav1.GetOptions{}))(t)
		identities[string(secret.Data[corev1beta1.KubeconfigSecretKey])] = true
	}
	t.Logf("%d renewals in %s", len(identities)-1, time.Since(begin).Round(time.Millisecond))
	_, err = io.WriteString(typed, "after\n")
	require.NoError(t, err)
	require.NoError(t, typed.Close())
	require.NoError(t, <-failed)
	require.Equal(t, "before\nafter\n", said)
	require.NoError(t, home.Pods("archive").Delete(ctx, "lines", metav1.DeleteOptions{}))
}
