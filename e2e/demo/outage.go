package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/site"
)

// outage is how long rome stays away: longer than every Lease in it lives, and than it takes
// rome to give up a node (NodeGrace).
const outage = 7 * time.Second

// running is what of a pod changes if it is made or started a second time.
type running struct {
	uid, containers, started string
	restarts                 int32
}

func snapshot(ctx context.Context, s *site.Site, namespace string) (map[string]running, error) {
	pods, err := list(ctx, s, namespace, "")
	if err != nil {
		return nil, err
	}
	out := map[string]running{}
	for _, p := range pods {
		out[p.Name] = identity(p)
	}
	return out, nil
}

func identity(p corev1.Pod) running {
	r := running{uid: string(p.UID)}
	for _, c := range p.Status.ContainerStatuses {
		r.containers += c.ContainerID
		r.restarts += c.RestartCount
		if c.State.Running != nil {
			r.started += c.State.Running.StartedAt.UTC().Format(time.RFC3339)
		}
	}
	return r
}

// loseRome kills rome's control plane and shows the others without it.
func (d *demo) loseRome(ctx context.Context) (err error) {
	d.before = map[string]map[string]running{}
	for _, s := range d.installed() {
		if d.before[s.Name], err = snapshot(ctx, s, d.namespace(s)); err != nil {
			return err
		}
	}
	places, err := d.places(ctx)
	if err != nil {
		return err
	}
	name, address, err := d.romeSeenFromMilan(ctx, places)
	if err != nil {
		return err
	}
	d.console.say("etcd, API server, scheduler and controller manager of rome end as if the power had failed.")
	d.rome.KillControlPlane()
	d.console.command("kubectl --context rome get pods")
	look, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := d.rome.Client().CoreV1().Pods(local).List(look, metav1.ListOptions{}); err != nil {
		d.console.say("%v", err)
	} else {
		return fmt.Errorf("rome's API server still answers")
	}
	d.console.note("%s pass, longer than any lease in rome lives", outage)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(outage):
	}
	if err := d.show(ctx, d.milan, get{namespace: twin, resource: "pods", wide: true}); err != nil {
		return err
	}
	if err := d.answering(ctx); err != nil {
		return err
	}
	if err := d.callRome(ctx, name, address); err != nil {
		return err
	}
	for _, s := range []*site.Site{d.milan, d.turin} {
		if err := d.unchanged(ctx, s); err != nil {
			return err
		}
	}
	d.proven("rome was gone for %s, and all %d pods in milan and turin kept running; those in milan answer, and reach the pods of rome",
		outage, len(d.before["milan"])+len(d.before["turin"]))
	return nil
}

// answering lets a pod in milan ask every other one.
func (d *demo) answering(ctx context.Context) error {
	pods, err := list(ctx, d.milan, twin, "")
	if err != nil {
		return err
	}
	for _, target := range pods[1:] {
		out, err := d.exec(ctx, d.milan, pods[0], "get", url(target))
		if err != nil {
			return err
		}
		if out != target.Name {
			return fmt.Errorf("pod %s answered %q", target.Name, out)
		}
	}
	return nil
}

// namespace is that of the application in a cluster.
func (d *demo) namespace(s *site.Site) string {
	if s == d.rome {
		return local
	}
	return twin
}

// unchanged compares the pods of the application in a cluster with those before.
func (d *demo) unchanged(ctx context.Context, s *site.Site) error {
	namespace, before := d.namespace(s), d.before[s.Name]
	after, err := snapshot(ctx, s, namespace)
	if err != nil {
		return err
	}
	var odd []string
	for name, want := range before {
		if have, ok := after[name]; !ok || have != want {
			odd = append(odd, fmt.Sprintf("%s was %+v and is %+v", name, want, have))
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			odd = append(odd, name+" is new")
		}
	}
	if len(odd) > 0 {
		return fmt.Errorf("the pods of namespace %s in %s are not the same: %s", namespace, s.Name, strings.Join(odd, "; "))
	}
	return nil
}

// regainRome starts rome's control plane on its old data and shows that nothing ran twice.
func (d *demo) regainRome(ctx context.Context) error {
	begin := time.Now()
	if err := d.rome.StartControlPlane(ctx); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { return errors.Join(d.allReady(ctx, begin), d.allAvailable(ctx)) }
	if err := d.until(ctx, ready); err != nil {
		return err
	}
	took := rounded(time.Since(begin))
	if err := d.show(ctx, d.rome, get{resource: "nodes"}); err != nil {
		return err
	}
	if err := d.show(ctx, d.rome, get{namespace: local, resource: "pods", wide: true}); err != nil {
		return err
	}
	d.console.say("")
	for _, s := range d.installed() {
		if err := d.unchanged(ctx, s); err != nil {
			return err
		}
		d.compare(s.Name, d.before[s.Name])
	}
	d.proven("%s after rome's machine started again everything is Ready; no pod was made or started a second time", took)
	return nil
}

// allReady says whether all of rome's nodes are Ready, and have said so since a time:
// what rome knew before is no news.
func (d *demo) allReady(ctx context.Context, since time.Time) error {
	for _, name := range []string{"milan", "turin", "rome-1"} {
		lease, err := d.rome.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
			return fmt.Errorf("node %s has not renewed its lease", name)
		}
		node, err := d.rome.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("node %s is not Ready: %s", name, c.Message)
			}
		}
	}
	return nil
}

// compare prints what proves that pods are the same as before.
func (d *demo) compare(cluster string, before map[string]running) {
	rows := [][]string{{"IN " + strings.ToUpper(cluster), "UID, AS BEFORE", "STARTED, AS BEFORE", "RESTARTS"}}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		r := before[name]
		rows = append(rows, []string{name, r.uid, r.started, fmt.Sprint(r.restarts)})
	}
	d.console.table(rows)
	d.console.say("")
}
