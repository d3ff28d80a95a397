package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const dataFile = "/data/note"

// volumes has each pod of store write into its volume, and the pods that replace them read.
func (d *demo) volumes(ctx context.Context) error {
	if _, err := d.liqod(ctx, "storage", "list", "--context", "rome"); err != nil {
		return err
	}
	before := map[types.UID]bool{}
	pods, err := d.storePods(ctx, before)
	if err != nil {
		return err
	}
	nodes := map[string]bool{}
	for _, p := range pods {
		nodes[p.Spec.NodeName] = true
		before[p.UID] = true
		if _, err := d.exec(ctx, d.rome, p, "write", dataFile, "of", p.Name); err != nil {
			return err
		}
	}
	if len(nodes) != storePods {
		return fmt.Errorf("the pods of store are on %v: not one in each cluster", nodes)
	}
	d.console.command("kubectl --context rome -n " + local + " delete pods -l app=store")
	if err := d.rome.Client().CoreV1().Pods(local).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=store"}); err != nil {
		return fmt.Errorf("deleting the pods of store: %w", err)
	}
	err = d.until(ctx, func(ctx context.Context) (err error) {
		pods, err = d.storePods(ctx, before)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.show(ctx, d.rome, get{namespace: local, resource: "pods", wide: true}); err != nil {
		return err
	}
	for _, p := range pods {
		out, err := d.exec(ctx, d.rome, p, "cat", dataFile)
		if err != nil {
			return err
		}
		if out != "of "+p.Name || !nodes[p.Spec.NodeName] {
			return fmt.Errorf("pod %s reads %q on node %s", p.Name, out, p.Spec.NodeName)
		}
	}
	d.proven("each cluster has a volume of the StatefulSet, and a pod that replaces another one returns to its data")
	return nil
}

// storePods returns the pods of store, all Ready and none of those before.
func (d *demo) storePods(ctx context.Context, before map[types.UID]bool) ([]corev1.Pod, error) {
	pods, err := d.rome.Client().CoreV1().Pods(local).List(ctx, metav1.ListOptions{LabelSelector: "app=store"})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of store: %w", err)
	}
	ready := 0
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !before[p.UID] {
				ready++
			}
		}
	}
	if ready != storePods || len(pods.Items) != storePods {
		return nil, fmt.Errorf("%d of %d new pods of store are Ready", ready, len(pods.Items))
	}
	return pods.Items, nil
}

// removeVolumes deletes what has pods, and the claims, and waits until the volumes are gone.
func (d *demo) removeVolumes(ctx context.Context) error {
	d.console.command("kubectl --context rome -n " + local + " delete deployments,statefulsets,pvc --all")
	c, all := d.rome.Client(), metav1.ListOptions{}
	for _, remove := range []func(context.Context, metav1.DeleteOptions, metav1.ListOptions) error{
		c.AppsV1().Deployments(local).DeleteCollection, c.AppsV1().StatefulSets(local).DeleteCollection,
		c.CoreV1().PersistentVolumeClaims(local).DeleteCollection,
	} {
		if err := remove(ctx, metav1.DeleteOptions{}, all); err != nil {
			return fmt.Errorf("deleting the application: %w", err)
		}
	}
	return d.until(ctx, func(ctx context.Context) error {
		volumes, err := c.CoreV1().PersistentVolumes().List(ctx, all)
		if err != nil {
			return err
		}
		var left []string
		for _, v := range volumes.Items {
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == local {
				left = append(left, v.Name)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("rome still has the volumes %s", strings.Join(left, ", "))
		}
		return nil
	})
}
