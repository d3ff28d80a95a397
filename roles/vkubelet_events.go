package roles

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/metadata"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/forge"
	"github.com/liqod/liqod/reflect/kinds"
)

// newEventsDropped registers the metric of dropped provider events.
func newEventsDropped(to *registry) *prometheus.CounterVec {
	dropped := counter("liqod_events_dropped_total", "Events of the provider that were not written home; reason is overflow, stale, refused or rate.", "reason")
	to.add(dropped)
	return dropped
}

// startEvents copies the provider's events to the consumer until stop is called. No observer
// follows it, because late events are no fault. reflects reports whether this replica reflects the
// kinds that the virtual nodes of a provider share.
func (v *vkubelet) startEvents(ctx context.Context, node kinds.OfNode, provider clients, pods *kinds.Pods, reflects func() bool) (stop func(), err error) {
	setting := v.env.Config.Reflection.Event
	if setting.Workers == 0 {
		v.env.Log.Info("events of the provider are not reflected")
		return func() {}, nil
	}
	there, err := metadata.NewForConfig(provider.config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client of the provider: %w", err)
	}
	here, err := metadata.NewForConfig(v.home.plain.config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client: %w", err)
	}
	objects := kinds.ObjectSubjects{Home: here, Provider: there, Origin: node.Origin, Destination: node.Destination, Reflects: reflects}
	node.Log = node.Log.Named("events")
	events := kinds.NewEvents(kinds.EventsConfig{
		OfNode: node, Home: v.home.fenced.kube, Provider: provider.kube,
		Chosen: func(annotations map[string]string) bool {
			chosen, _ := forge.Reflects(forge.Policy(setting.Type), annotations) // the reflection of the object reports a contradiction
			return chosen
		},
		Pods: pods.Subject, Objects: objects.Subject, Busy: pods.Waiting, Workers: setting.Workers,
		Dropped: func(reason string) { v.eventsDropped.WithLabelValues(reason).Inc() },
	})
	return loop.Start(ctx, func(ctx context.Context) {
		if err := events.Run(ctx); err != nil {
			v.env.Log.Error("events of the provider are not reflected", zap.Error(err))
		}
	}), nil
}
