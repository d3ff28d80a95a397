package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
)

// lookout is the view of one cluster from another one that lives: by watches alone, which
// cost the cluster that lives little, and the one that is hit nothing.
type lookout struct {
	api, network, endpoint series
	node                   *series // nil: it has no virtual node for the other
	// pod is the Service's pod over there, as its home says; nil: it is not at home here.
	pod  *series
	stop func()
}

// newLookout watches the other cluster from the living one, until it is stopped.
func newLookout(ctx context.Context, living, other *victim, uses bool) (*lookout, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &lookout{}
	named := func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + other.site.Name }
	peers := externalversions.NewSharedInformerFactoryWithOptions(living.site.Liqod(), 0, externalversions.WithTweakListOptions(named))
	nodes := informers.NewSharedInformerFactoryWithOptions(living.site.Client(), 0, informers.WithTweakListOptions(named))
	slices := informers.NewSharedInformerFactoryWithOptions(living.site.Client(), 0, informers.WithNamespace(living.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = discoveryv1.LabelServiceName + "=" + contService
		}))
	pods := informers.NewSharedInformerFactoryWithOptions(living.site.Client(), 0, informers.WithNamespace(living.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + other.pod }))
	o.stop = func() {
		cancel()
		pods.Shutdown()
		peers.Shutdown()
		nodes.Shutdown()
		slices.Shutdown()
	}
	endpoints := slices.Discovery().V1().EndpointSlices()
	handlers := map[cache.SharedIndexInformer]func(any){
		peers.Core().V1beta1().ForeignClusters().Informer(): o.peer,
		endpoints.Informer(): func(any) {
			all := endpoints.Informer().GetStore().List()
			o.endpoint.note(time.Now(), endpointReady(all, other.pod))
		},
	}
	if uses {
		o.node = &series{}
		handlers[nodes.Core().V1().Nodes().Informer()] = o.virtualNode
	}
	if living.namespace == contNamespace {
		o.pod = &series{}
		handlers[pods.Core().V1().Pods().Informer()] = o.offloaded
	}
	for informer, see := range handlers {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, now any) { see(now) }, DeleteFunc: see,
		}); err != nil {
			o.stop()
			return nil, fmt.Errorf("watching %s: %w", living.site.Name, err)
		}
	}
	peers.Start(ctx.Done())
	nodes.Start(ctx.Done())
	slices.Start(ctx.Done())
	pods.Start(ctx.Done())
	return o, nil
}

func (o *lookout) peer(obj any) {
	now := time.Now()
	if fc, ok := obj.(*corev1beta1.ForeignCluster); ok {
		o.api.note(now, meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionAPIServer))
		o.network.note(now, meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionNetwork))
	}
}

func (o *lookout) virtualNode(obj any) {
	now := time.Now()
	if n, ok := obj.(*corev1.Node); ok {
		o.node.note(now, nodeReadiness(n) == corev1.ConditionTrue)
	}
}

func (o *lookout) offloaded(obj any) {
	now := time.Now()
	if p, ok := obj.(*corev1.Pod); ok {
		o.pod.note(now, podReady(p))
	}
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// endpointReady says whether one of the EndpointSlices has a ready endpoint of the pod.
func endpointReady(slices []any, pod string) bool {
	for _, obj := range slices {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && e.TargetRef.Name == pod && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				return true
			}
		}
	}
	return false
}

// all are the things that are watched, by name.
func (o *lookout) all() map[string]*series {
	out := map[string]*series{byAPIServer: &o.api, byNetwork: &o.network, "endpoint": &o.endpoint}
	if o.node != nil {
		out["virtual node"] = o.node
	}
	if o.pod != nil {
		out["pod"] = o.pod
	}
	return out
}

// calm says whether all has been well for a time.
func (o *lookout) calm(since time.Duration) error {
	for name, s := range o.all() {
		if at, well := s.wellSince(); !well || time.Since(at) < since {
			return fmt.Errorf("%s has not been well for %s", name, since)
		}
	}
	return nil
}

// down is when the condition that tells of a fault first turned unwell.
func (o *lookout) down(by string, since time.Time) (time.Time, bool) {
	api, apiTurned := o.api.turned(since, false)
	network, networkTurned := o.network.turned(since, false)
	switch {
	case by == byAPIServer:
		return api, apiTurned
	case by == byNetwork:
		return network, networkTurned
	case by == byEither && networkTurned && (!apiTurned || network.Before(api)):
		return network, true
	case by == byEither:
		return api, apiTurned
	}
	return time.Time{}, false
}

// back is when the last one of several things turned well that were not well at a time;
// false: all were, or one is not well yet.
func back(since time.Time, things ...*series) (last time.Time, found bool) {
	for _, s := range things {
		if s == nil {
			continue
		}
		at, well := s.wellSince()
		if !well {
			return time.Time{}, false
		}
		if at.After(since) && at.After(last) {
			last, found = at, true
		}
	}
	return last, found
}
