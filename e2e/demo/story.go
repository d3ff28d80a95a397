package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/site"
)

//go:embed shop.yaml
var shopManifests string

const (
	webPods    = 4
	workerPods = 2
	storePods  = 3
	port       = 8080
	tailLines  = 3
)

func (d *demo) connect(ctx context.Context) error {
	d.console.say("The people of milan and turin make a token each; with it rome gets an identity there, asks for capacity, and makes a virtual node of what is offered.")
	begin := time.Now()
	group, peering := errgroup.WithContext(ctx)
	for _, provider := range []string{"milan", "turin"} {
		token, err := d.liqod(ctx, "token", "create", "--context", provider)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		args := []string{"peer", "--context", "rome", "--timeout", patience.String(), "--token", onlyToken(token)}
		group.Go(func() error {
			out, err := d.command(peering, args...)
			d.printed(args, out)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := rounded(time.Since(begin))
	if err := d.show(ctx, d.rome, get{namespace: "liqo-tenant-milan", resource: "virtualnodes"}); err != nil {
		return err
	}
	if err := d.show(ctx, d.rome, get{resource: "nodes"}); err != nil {
		return err
	}
	d.proven("milan and turin are nodes of rome, Ready %s after the first step", took)
	return nil
}

// onlyToken returns the token in what printed it.
func onlyToken(printed string) string {
	for word := range strings.FieldsSeq(printed) {
		if strings.HasPrefix(word, "liqod1.") {
			return word
		}
	}
	return ""
}

func (d *demo) offload(ctx context.Context) error {
	d.console.command("kubectl --context rome create namespace " + local)
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: local}}
	if _, err := d.rome.Client().CoreV1().Namespaces().Create(ctx, shop, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", local, err)
	}
	if _, err := d.liqod(ctx, "offload", "namespace", local, "--context", "rome", "--timeout", patience.String()); err != nil {
		return err
	}
	if err := d.show(ctx, d.rome, get{namespace: local, resource: "namespaceoffloadings", wide: true}); err != nil {
		return err
	}
	d.console.good("its twin in milan and in turin is the namespace %s", twin)
	return nil
}

// liqod runs a command, shows the line and what it printed, and returns that.
func (d *demo) liqod(ctx context.Context, args ...string) (string, error) {
	out, err := d.command(ctx, args...)
	d.printed(args, out)
	return out, err
}

func (d *demo) command(ctx context.Context, args ...string) (string, error) {
	cmd := d.sites.Command(ctx, args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+d.kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("liqod %s: %w", strings.Join(args, " "), err)
	}
	return string(out), err
}

// printed shows the line of a command, and what it has printed.
func (d *demo) printed(args []string, out string) {
	d.console.command("liqod " + strings.Join(args, " "))
	d.console.say("%s", strings.TrimSpace(out))
}

func (d *demo) deploy(ctx context.Context) error {
	d.console.say("e2e/demo/shop.yaml: plain Deployments, a StatefulSet and Services. `web` and `store` spread over all clusters, `worker` asks for another one than rome (runtimeClassName: liqo).")
	d.console.command("kubectl --context rome apply -f e2e/demo/shop.yaml")
	begin := time.Now()
	if err := d.rome.Apply(ctx, []byte(shopManifests)); err != nil {
		return err
	}
	if err := d.until(ctx, d.allAvailable); err != nil {
		return err
	}
	took := rounded(time.Since(begin))
	if err := d.show(ctx, d.rome, get{namespace: local, resource: "pods", wide: true}); err != nil {
		return err
	}
	for _, s := range []*site.Site{d.milan, d.turin} {
		if err := d.show(ctx, s, get{namespace: twin, resource: "pods", wide: true}); err != nil {
			return err
		}
	}
	if _, err := d.liqod(ctx, "status", "--context", "rome"); err != nil {
		return err
	}
	milan, errMilan := list(ctx, d.milan, twin, "")
	turin, errTurin := list(ctx, d.turin, twin, "")
	if err := errors.Join(errMilan, errTurin); err != nil {
		return err
	}
	d.proven("%d pods run, %d of them in milan and %d in turin, available %s after the apply", webPods+workerPods+storePods, len(milan), len(turin), took)
	return nil
}

// allAvailable says whether the Deployments and the StatefulSet are as rome wants them.
func (d *demo) allAvailable(ctx context.Context) error {
	for name, want := range map[string]int32{"web": webPods, "worker": workerPods} {
		have, err := d.rome.Client().AppsV1().Deployments(local).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := have.Status; s.ObservedGeneration != have.Generation || s.AvailableReplicas != want || s.Replicas != want {
			return fmt.Errorf("deployment %s has %d pods, %d available, of %d", name, s.Replicas, s.AvailableReplicas, want)
		}
	}
	store, err := d.rome.Client().AppsV1().StatefulSets(local).Get(ctx, "store", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s := store.Status; s.ObservedGeneration != store.Generation || s.AvailableReplicas != storePods {
		return fmt.Errorf("statefulset store has %d pods available of %d", s.AvailableReplicas, storePods)
	}
	return nil
}

// remotePods are the pods of the application that run in milan, as rome sees them.
func (d *demo) remotePods(ctx context.Context) ([]corev1.Pod, error) {
	return list(ctx, d.rome, local, "spec.nodeName=milan")
}

func list(ctx context.Context, s *site.Site, namespace, fields string) ([]corev1.Pod, error) {
	pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s in %s: %w", namespace, s.Name, err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("there is no pod in namespace %s of %s (%s)", namespace, s.Name, fields)
	}
	return pods.Items, nil
}

// ends returns a pod on rome's own node, and one on milan.
func (d *demo) ends(ctx context.Context) (here, there corev1.Pod, err error) {
	local, err := list(ctx, d.rome, local, "spec.nodeName=rome-1")
	if err != nil {
		return here, there, err
	}
	remote, err := d.remotePods(ctx)
	if err != nil {
		return here, there, err
	}
	return local[0], remote[0], nil
}

func url(pod corev1.Pod) string { return fmt.Sprintf("http://%s:%d/", pod.Status.PodIP, port) }

// exec runs a command in a pod and shows the line and what it printed.
func (d *demo) exec(ctx context.Context, s *site.Site, pod corev1.Pod, args ...string) (string, error) {
	d.console.command(fmt.Sprintf("kubectl --context %s -n %s exec %s -- %s", s.Name, pod.Namespace, pod.Name, strings.Join(args, " ")))
	var out string
	err := d.until(ctx, func(ctx context.Context) (err error) {
		out, err = s.Exec(ctx, pod.Namespace, pod.Name, args...)
		return err
	})
	out = strings.TrimSpace(out)
	d.console.say("%s", out)
	return out, err
}

func (d *demo) logsAndExec(ctx context.Context) error {
	_, there, err := d.ends(ctx)
	if err != nil {
		return err
	}
	d.console.command(fmt.Sprintf("kubectl --context rome -n %s logs %s --tail=%d", local, there.Name, tailLines))
	var data []byte
	err = d.until(ctx, func(ctx context.Context) (err error) {
		data, err = d.rome.Client().CoreV1().Pods(local).GetLogs(there.Name, &corev1.PodLogOptions{TailLines: ptr.To[int64](tailLines)}).DoRaw(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the log of pod %s through rome: %w", there.Name, err)
	}
	d.console.say("%s", strings.TrimSpace(string(data)))
	host, err := d.exec(ctx, d.rome, there, "hostname")
	if err != nil {
		return err
	}
	if host != there.Name {
		return fmt.Errorf("the host name in pod %s is %q", there.Name, host)
	}
	d.proven("kubectl logs and exec in rome work for pods in milan; rome's API server verified the certificate")
	return nil
}

func (d *demo) remove(ctx context.Context) error {
	if d.keep {
		d.console.say("Left out: KEEP=1 leaves everything running.")
		return nil
	}
	begin := time.Now()
	d.console.say("The data goes with its claims. With a namespace that has claims, the data would be kept.")
	if err := d.removeVolumes(ctx); err != nil {
		return err
	}
	d.console.command("kubectl --context rome delete namespace " + local)
	if err := d.rome.Client().CoreV1().Namespaces().Delete(ctx, local, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting namespace %s: %w", local, err)
	}
	if err := errors.Join(d.gone(ctx, d.milan, twin), d.gone(ctx, d.turin, twin)); err != nil {
		return err
	}
	d.proven("nothing of it is left in milan and turin %s after its deletion in rome", rounded(time.Since(begin)))
	return nil
}

// gone waits until a namespace, and all in it, is gone.
func (d *demo) gone(ctx context.Context, s *site.Site, namespace string) error {
	return d.until(ctx, func(ctx context.Context) error {
		if _, err := s.Client().CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s is still in %s (%v)", namespace, s.Name, err)
		}
		return nil
	})
}
