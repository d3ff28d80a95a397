package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const testClusters = 2

// newTestLab makes a lab, where the next one finds it should this process be killed, that fails the test when a process of it ends by itself.
func newTestLab(t *testing.T) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts clusters: not with -short")
	}
	l, err := New(t.Context(), Options{Clusters: testClusters, Log: t.Logf, Exited: func(p *Process) {
		t.Errorf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(2000))
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func within(t *testing.T, patience time.Duration, what string, cond func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), max(patience, time.Minute))
	defer cancel()
	begin := time.Now()
	require.NoError(t, Eventually(ctx, cond), what)
	t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
}

func startTwo(t *testing.T, l *Lab) (rome, milan *Cluster) {
	t.Helper()
	type result struct {
		cluster *Cluster
		err     error
	}
	results := make(chan result, 2)
	for i, name := range []string{"rome", "milan"} {
		go func() {
			c, err := l.Start(t.Context(), ClusterOptions{
				Name: name, SimulatedNodes: 2, Audit: true,
				PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 110+i),
			})
			results <- result{c, err}
		}()
	}
	for range 2 {
		r := <-results
		require.NoError(t, r.err)
	}
	return l.Cluster("rome"), l.Cluster("milan")
}

func TestLabTwoClusters(t *testing.T) {
	l := newTestLab(t)
	rome, milan := startTwo(t, l)
	t.Run("deployment", func(t *testing.T) { testDeployment(t, rome) })
	t.Run("clusters are apart", func(t *testing.T) {
		_, err := milan.Client().AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	t.Run("client authority is published", func(t *testing.T) {
		cm, err := rome.Client().CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, string(rome.CA), cm.Data["client-ca-file"])
	})
	t.Run("faults", func(t *testing.T) { testFaults(t, milan) })
	t.Run("node silent", func(t *testing.T) { testSilentNode(t, milan) })
	t.Run("audit", func(t *testing.T) {
		writes, err := milan.Audited(func(r AuditRecord) bool { return r.Verb == "create" && r.Resource() == "nodes" })
		require.NoError(t, err)
		require.Len(t, writes, 2)
	})
	t.Run("control plane killed", func(t *testing.T) { testControlPlane(t, rome) })
	t.Run("close", func(t *testing.T) {
		begin := time.Now()
		require.NoError(t, l.Close())
		t.Logf("closed in %s", time.Since(begin))
		require.NoDirExists(t, l.Dir())
		left, err := marked(l.Dir())
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func testDeployment(t *testing.T, c *Cluster) {
	labels := map[string]string{"app": "web"}
	replicas := int32(10)
	_, err := c.Client().AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, time.Minute, "10 pods available", func(ctx context.Context) error { return available(ctx, c, "web", 10) })
	pods, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	_, want, err := net.ParseCIDR(c.Options.PodCIDR)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, pod := range pods.Items {
		require.True(t, want.Contains(net.ParseIP(pod.Status.PodIP)), pod.Status.PodIP)
		require.False(t, seen[pod.Status.PodIP], "address %s given twice", pod.Status.PodIP)
		seen[pod.Status.PodIP] = true
	}
}

func available(ctx context.Context, c *Cluster, name string, want int32) error {
	d, err := c.Client().AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if d.Status.AvailableReplicas != want {
		return fmt.Errorf("%d of %d pods are available", d.Status.AvailableReplicas, want)
	}
	return nil
}

// proxiedClient is a client with the token of a service account, through the front.
func proxiedClient(t *testing.T, c *Cluster) kubernetes.Interface {
	t.Helper()
	_, err := c.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	path, err := c.KubeconfigFor(t.Context(), Access{Namespace: "default", ServiceAccount: "default", Proxied: true})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	require.Equal(t, c.Proxied().URL, config.Host)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func testFaults(t *testing.T, c *Cluster) {
	client, front := proxiedClient(t, c), c.Proxied()
	look := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	within(t, 10*time.Second, "through the front", look)
	t.Run("own identity only", func(t *testing.T) {
		_, err := client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("watch and drop", func(t *testing.T) { testDroppedWatch(t, c, client, look) })
	t.Run("error", func(t *testing.T) {
		front.Fail()
		err := look(t.Context())
		require.True(t, apierrors.IsInternalError(err), "%v", err)
		front.Pass()
		require.NoError(t, look(t.Context()))
	})
	t.Run("every third fails", func(t *testing.T) {
		front.FailEvery(3)
		defer front.Pass()
		failures := 0
		for range 9 {
			if look(t.Context()) != nil {
				failures++
			}
		}
		require.Equal(t, 3, failures)
	})
	t.Run("paused", func(t *testing.T) {
		c.PauseAPIServer()
		err := look(t.Context())
		require.Error(t, err)
		c.ResumeAPIServer()
		within(t, 10*time.Second, "after the pause", look)
	})
	t.Run("killed", func(t *testing.T) {
		c.KillAPIServer()
		require.Error(t, look(t.Context()))
		begin := time.Now()
		require.NoError(t, c.StartAPIServer(t.Context()))
		t.Logf("API server ready again: %s", time.Since(begin).Round(time.Millisecond))
		within(t, 10*time.Second, "after the kill", look)
	})
}

func testDroppedWatch(t *testing.T, c *Cluster, client kubernetes.Interface, look func(context.Context) error) {
	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=mark"})
	require.NoError(t, err)
	defer watch.Stop()
	c.Proxied().Drop()
	require.ErrorIs(t, look(t.Context()), context.DeadlineExceeded)
	_, err = c.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mark"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	select {
	case event := <-watch.ResultChan():
		require.Fail(t, "an event came through", "%v", event)
	case <-time.After(300 * time.Millisecond):
	}
	c.Proxied().Pass()
	select {
	case event := <-watch.ResultChan():
		require.Equal(t, "mark", event.Object.(*corev1.ConfigMap).Name)
	case <-time.After(10 * time.Second):
		require.Fail(t, "the watch did not survive")
	}
	within(t, 10*time.Second, "after the drop", look)
}

func testSilentNode(t *testing.T, c *Cluster) {
	name := c.SimulatedNodeName(1)
	require.NoError(t, c.KillSimulatedNode(t.Context(), name))
	begin := time.Now()
	require.NoError(t, c.WaitNode(t.Context(), name, corev1.ConditionUnknown))
	t.Logf("node unknown: %s", time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	require.NoError(t, c.ReviveSimulatedNode(t.Context(), name))
	require.NoError(t, c.WaitNode(t.Context(), name, corev1.ConditionTrue))
	t.Logf("node ready again: %s", time.Since(begin).Round(time.Millisecond))
}

func testControlPlane(t *testing.T, c *Cluster) {
	c.KillControlPlane()
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler} {
		require.False(t, c.Component(name).Running(), name)
	}
	begin := time.Now()
	require.NoError(t, c.StartControlPlane(t.Context()))
	t.Logf("control plane back: %s", time.Since(begin).Round(time.Millisecond))
	require.NoError(t, available(t.Context(), c, "web", 10))
	_, err := c.Client().AppsV1().Deployments("default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":12}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	within(t, 30*time.Second, "two more pods", func(ctx context.Context) error { return available(ctx, c, "web", 12) })
}

func TestLabUnexpectedExit(t *testing.T) {
	exited := make(chan *Process, 1)
	l, err := New(t.Context(), Options{Dir: t.TempDir(), Kubelab: os.Args[0], Exited: func(p *Process) { exited <- p }})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Process(ProcessOptions{Name: "short", Path: "sh", Args: []string{"-c", "echo bye; exit 3"}})
	require.NoError(t, err)
	p := <-exited
	require.Equal(t, 3, p.ExitCode())
	require.Equal(t, "bye\n", p.Tail(100))
	var exit *exec.ExitError
	require.ErrorAs(t, p.Err(), &exit)

	p, err = l.Process(ProcessOptions{Name: "stubborn", Path: "sh", Args: []string{"-c", "trap '' TERM; echo up; while :; do sleep 1; done"}})
	require.NoError(t, err)
	within(t, 10*time.Second, "trap set", func(context.Context) error {
		if p.Tail(10) == "" {
			return errors.New("silence")
		}
		return nil
	})
	require.ErrorContains(t, p.Stop(t.Context(), 50*time.Millisecond), "did not end")
	require.False(t, p.Running())
	require.NoError(t, l.Close())
	_, err = l.Process(ProcessOptions{Name: "late", Path: "true"})
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, exited, "a stopped process is no unexpected exit")
}

const crashVariable = "LAB_TEST_CRASH_DIR"

// TestLabCrashHelper is no test: it is the lab that TestLabCrash kills.
func TestLabCrashHelper(t *testing.T) {
	dir := os.Getenv(crashVariable)
	if dir == "" {
		return
	}
	l, err := New(t.Context(), Options{Dir: dir, Kubelab: os.Args[0]})
	require.NoError(t, err)
	require.NoError(t, l.Undo("touch", dir+"/undone"))
	child, err := l.Process(ProcessOptions{Name: "child", Path: "sleep", Args: []string{"1000"}})
	require.NoError(t, err)
	// A grandchild in a session of its own does not die with its parents.
	grand, err := l.Process(ProcessOptions{Name: "grand", Path: "setsid", Args: []string{"--fork", "sleep", "1000"}, MayExit: true})
	require.NoError(t, err)
	<-grand.Exited()
	fmt.Println("pid", child.PID, l.Dir())
	select {}
}

func TestLabCrash(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLabCrashHelper$")
	cmd.Env = append(os.Environ(), crashVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var child int
	var run string
	scanner := bufio.NewScanner(out)
	for child == 0 && scanner.Scan() {
		_, _ = fmt.Sscanf(scanner.Text(), "pid %d %s", &child, &run)
	}
	require.NotZero(t, child)
	within(t, 10*time.Second, "the child and the grandchild live", func(context.Context) error {
		alive, err := marked(run)
		if err == nil && len(alive) != 2 {
			err = fmt.Errorf("these live: %v", alive)
		}
		return err
	})

	t.Run("a living lab is left alone", func(t *testing.T) {
		l, err := New(t.Context(), Options{Dir: dir, Kubelab: os.Args[0]})
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.DirExists(t, run)
	})
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	within(t, 10*time.Second, "the child dies with its lab", func(context.Context) error {
		if carriesMark(child, run) {
			return errors.New("it lives")
		}
		return nil
	})
	l, err := New(t.Context(), Options{Dir: dir, Kubelab: os.Args[0]})
	require.NoError(t, err)
	require.NoDirExists(t, run)
	require.FileExists(t, dir+"/undone")
	left, err := marked(run)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, l.Close())
}
