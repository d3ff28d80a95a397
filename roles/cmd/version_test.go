package cmd

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const ownVersion = "liqod 0.1.0 (go1.26, linux/amd64)\n"

// role is the Deployment of a role, as the chart makes it.
func role(name, version, image string) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": "liqod", "app.kubernetes.io/component": name, "app.kubernetes.io/version": version}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-" + name, Labels: labels},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}},
	}
}

// version prints what the cluster runs, and warns of parts and of a command of other versions.
func TestVersionOfTheCluster(t *testing.T) {
	t.Parallel()
	c := installation(t, "rome")
	controller := role("controller", "0.2.0", "liqod:0.2.0")
	controller.Status.ReadyReplicas = 1
	c.add(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-controller"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("liqod-controller-0"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro())}},
		controller, role("gateway", "0.2.0", "liqod:0.1.0"))
	out := c.ran(t, "version")
	require.Contains(t, out, ownVersion+"\nCluster rome\nliqod 0.2.0 in namespace liqod, Kubernetes ")
	require.Contains(t, out, "‼ versions: the controller runs liqod:0.2.0, but role gateway runs liqod:0.1.0, this command has version 0.1.0, and the chart 0.2.0\n")
	out = c.ran(t, "version", "-o", "yaml")
	require.Contains(t, out, "cluster:\n  cluster: rome\n  findings:\n  - docs: ")
	require.Contains(t, out, "platform: linux/amd64\nversion: 0.1.0\n")
	require.Contains(t, out, "    level: ok\n    message: 1 of 1 replica is ready; liqod-controller-0 leads\n    name: controller\n", "the Lease is read before it is judged")
}

func TestVersionWithoutACluster(t *testing.T) {
	c := newCluster()
	out := c.ran(t, "version", "--client")
	require.Equal(t, ownVersion, out)
	require.Empty(t, c.core.Actions())

	t.Setenv("HOME", t.TempDir())
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	commands := &commands{program: "liqod", build: Build{"0.1.0", "go1.26", "linux/amd64"}, connect: (*connection).clients, every: time.Millisecond}
	out, err := execute(t, commands, "version")
	require.NoError(t, err, "no kubeconfig")
	require.Equal(t, ownVersion, out)
	out, err = execute(t, commands, "version", "--kubeconfig", writeKubeconfig(t, closed.URL))
	require.ErrorContains(t, err, "the API server does not answer")
	require.Equal(t, ExitUnknown, code(err))
	require.Equal(t, ownVersion, out)
}

func TestVersionWithoutRights(t *testing.T) {
	t.Parallel()
	c := installation(t, "rome")
	c.forbid("list", "deployments")
	out := c.fails(t, ExitUnknown, "", "version")
	require.Contains(t, out, "may not read Deployments of liqod")
}
