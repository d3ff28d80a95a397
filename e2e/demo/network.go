package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/site"
)

// call asks the Service by name until pods of all clusters have answered.
func (d *demo) call(ctx context.Context) error {
	d.console.say("All clusters have the pod range %s and the Service range %s.", d.rome.Options.PodCIDR, d.rome.Options.ServiceCIDR)
	if err := d.show(ctx, d.rome, get{namespace: "liqo-tenant-milan", resource: "connections", wide: true}); err != nil {
		return err
	}
	here, there, err := d.ends(ctx)
	if err != nil {
		return err
	}
	if err := d.keptOrTranslated(ctx, there); err != nil {
		return err
	}
	places, err := d.places(ctx)
	if err != nil {
		return err
	}
	if err := d.answeredByAll(ctx, d.rome, here, places); err != nil {
		return err
	}
	if _, err := d.liqod(ctx, "network", "explain", there.Status.PodIP, "--from", here.Status.PodIP, "--context", "rome"); err != nil {
		return err
	}
	d.proven("a pod of rome calls a Service by its name, and pods in all clusters answer")
	return nil
}

// keptOrTranslated says which of the two happens to the address of a pod in milan on the way to rome.
func (d *demo) keptOrTranslated(ctx context.Context, there corev1.Pod) error {
	pods, err := list(ctx, d.milan, twin, "")
	if err != nil {
		return err
	}
	for _, p := range pods {
		switch {
		case p.Name != there.Name:
		case p.Status.PodIP == there.Status.PodIP:
			d.console.say("Addresses are kept: the pod %s has %s in both clusters.", p.Name, p.Status.PodIP)
			return nil
		default:
			d.console.say("Addresses are translated: the pod %s has %s in milan, and rome reaches it at %s.", p.Name, p.Status.PodIP, there.Status.PodIP)
			return nil
		}
	}
	return fmt.Errorf("milan has no pod %s", there.Name)
}

// places say in which cluster each pod of web runs.
func (d *demo) places(ctx context.Context) (map[string]string, error) {
	pods, err := d.rome.Client().CoreV1().Pods(local).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of web: %w", err)
	}
	out := map[string]string{}
	for _, p := range pods.Items {
		out[p.Name] = "rome"
		if node := p.Spec.NodeName; node == "milan" || node == "turin" {
			out[p.Name] = node
		}
	}
	return out, nil
}

// answeredByAll has a pod ask http://web:8080 until pods of all clusters have answered.
func (d *demo) answeredByAll(ctx context.Context, s *site.Site, from corev1.Pod, places map[string]string) error {
	address := fmt.Sprintf("http://web:%d/", port)
	d.console.command(fmt.Sprintf("kubectl --context %s -n %s exec %s -- get %s      # some times", s.Name, from.Namespace, from.Name, address))
	answered := map[string]bool{}
	return d.until(ctx, func(ctx context.Context) error {
		for range 4 * len(places) { // another pod may answer the next time, without a pause
			out, err := s.Exec(ctx, from.Namespace, from.Name, "get", address)
			if err != nil {
				return err
			}
			name := strings.TrimSpace(out)
			if !answered[places[name]] {
				d.console.say("%s      # runs in %s", name, places[name])
			}
			if answered[places[name]] = true; answered["rome"] && answered["milan"] && answered["turin"] {
				return nil
			}
		}
		return fmt.Errorf("only pods of %v have answered", answered)
	})
}

// callBack asks from milan: the Service by name, which has pods in turin too, and a pod of rome by the
// address that milan shows.
func (d *demo) callBack(ctx context.Context) error {
	places, err := d.places(ctx)
	if err != nil {
		return err
	}
	pods, err := list(ctx, d.milan, twin, "")
	if err != nil {
		return err
	}
	if err := d.answeredByAll(ctx, d.milan, pods[0], places); err != nil {
		return err
	}
	name, address, err := d.romeSeenFromMilan(ctx, places)
	if err != nil {
		return err
	}
	d.console.say("milan shows the pod %s of rome under %s, in the endpoints of web.", name, address)
	if err := d.callRome(ctx, name, address); err != nil {
		return err
	}
	d.proven("a pod in milan calls pods of rome, by name and by the address that milan shows, and pods of turin, which is no peer of milan")
	return nil
}

// callRome has a pod in milan ask the pod of rome that has an address there.
func (d *demo) callRome(ctx context.Context, name, address string) error {
	pods, err := list(ctx, d.milan, twin, "")
	if err != nil {
		return err
	}
	out, err := d.exec(ctx, d.milan, pods[0], "get", fmt.Sprintf("http://%s:%d/", address, port))
	if err != nil {
		return err
	}
	if out != name {
		return fmt.Errorf("pod %s answered at %s instead of %s", out, address, name)
	}
	return nil
}

// romeSeenFromMilan returns a pod of rome, and its address in milan's endpoints.
func (d *demo) romeSeenFromMilan(ctx context.Context, places map[string]string) (name, address string, err error) {
	slices, err := d.milan.Client().DiscoveryV1().EndpointSlices(twin).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return "", "", fmt.Errorf("listing the endpoints of web in milan: %w", err)
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && places[e.TargetRef.Name] == "rome" {
				return e.TargetRef.Name, e.Addresses[0], nil
			}
		}
	}
	return "", "", fmt.Errorf("milan has no endpoint of web that runs in rome: %+v", slices.Items)
}

// loseGateway kills the gateway of milan, whose Deployment makes another.
func (d *demo) loseGateway(ctx context.Context) error {
	here, there, err := d.ends(ctx)
	if err != nil {
		return err
	}
	d.console.command("kubectl --context milan -n " + site.Namespace + " delete pod -l app.kubernetes.io/component=gateway --grace-period=0 --force")
	begin := time.Now()
	if err := d.milan.KillGatewayPod(ctx); err != nil {
		return err
	}
	// The old one may still answer for a moment.
	if err := d.until(ctx, func(ctx context.Context) error { return d.gatewaySince(ctx, begin) }); err != nil {
		return err
	}
	if _, err := d.exec(ctx, d.rome, here, "get", url(there)); err != nil {
		return err
	}
	took := rounded(time.Since(begin))
	if err := d.show(ctx, d.milan, get{namespace: site.Namespace, resource: "pods", wide: true}); err != nil {
		return err
	}
	d.proven("%s after milan's gateway was killed, another one has its place, and pods of rome and milan reach each other", took)
	return nil
}

// gatewaySince says whether milan has a gateway, Ready, that was made after a time.
func (d *demo) gatewaySince(ctx context.Context, begin time.Time) error {
	pods, err := d.milan.Client().CoreV1().Pods(site.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=gateway"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		// Times of the API are of whole seconds.
		if p.CreationTimestamp.Time.Before(begin.Truncate(time.Second)) {
			continue
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
	}
	return fmt.Errorf("milan has no new gateway yet")
}
