package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/site"
)

const (
	explainTime = 20 * time.Second
	explainTail = 40
)

// proven prints what a step has shown and keeps it for the summary.
func (d *demo) proven(format string, args ...any) {
	d.console.good(format, args...)
	d.results = append(d.results, fmt.Sprintf(format, args...))
}

func (d *demo) summary() {
	d.console.heading("Summary")
	rows := [][]string{{"STEP", "TIME"}}
	for i, s := range d.steps {
		rows = append(rows, []string{fmt.Sprintf("%d. %s", i+1, s.title), rounded(s.took).String()})
	}
	d.console.table(append(rows, []string{"all of it", rounded(time.Since(d.begin)).String()}))
	d.console.say("")
	for _, r := range d.results {
		d.console.good("%s", r)
	}
}

// explain prints what helps to understand a step that failed: the pods of the
// clusters, and the ends of the roles' logs. The files go with the lab.
func (d *demo) explain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, explainTime)
	defer cancel()
	for _, s := range d.installed() {
		if s == nil {
			continue
		}
		pods, err := s.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			d.console.say("\nThe pods of %s cannot be listed: %v", s.Name, err)
			continue
		}
		d.console.say("\nPods of %s:", s.Name)
		rows := [][]string{{"NAMESPACE", "NAME", "NODE", "PHASE", "REASON"}}
		for _, p := range pods.Items {
			rows = append(rows, []string{p.Namespace, p.Name, p.Spec.NodeName, string(p.Status.Phase), p.Status.Reason + p.Status.Message})
		}
		d.console.table(rows)
		for _, p := range pods.Items {
			if p.Labels["app.kubernetes.io/name"] == "liqod" || p.Labels["liqo.io/virtual-node"] != "" {
				d.tail(ctx, s, p)
			}
		}
	}
}

func (d *demo) tail(ctx context.Context, s *site.Site, p corev1.Pod) {
	opts := &corev1.PodLogOptions{TailLines: ptr.To[int64](explainTail)}
	data, err := s.Client().CoreV1().Pods(p.Namespace).GetLogs(p.Name, opts).DoRaw(ctx)
	if err != nil {
		d.console.say("\nThe log of %s in %s cannot be read: %v", p.Name, s.Name, err)
		return
	}
	d.console.say("\nThe end of the log of %s in %s:\n%s", p.Name, s.Name, data)
}
