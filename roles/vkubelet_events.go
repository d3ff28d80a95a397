package roles

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/metadata"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
	"github.com/liqod/liqod/reflect/kinds"
)

// newEventsDropped registers the metric of dropped provider events.
func newEventsDropped(registry prometheus.Registerer) (*prometheus.CounterVec, error) {
	dropped := counter("liqod_events_dropped_total", "Events of the provider that were not written home; reason is overflow, stale, refused or rate.", "reason")
	if err := registry.Register(dropped); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return dropped, nil
}

// eventsConfig is the input of startEvents.
type eventsConfig struct {
	destination string
	provider    clients
	namespaces  *engine.Follower
	pods        *kinds.Pods
	check       *link.Check
	// reflects reports whether this replica reflects the kinds that the virtual nodes of a
	// provider share.
	reflects func() bool
}

// startEvents copies the provider's events to the consumer until stop is called. No observer
// follows it, because late events are no fault.
func (v *vkubelet) startEvents(ctx context.Context, c eventsConfig) (stop func(), err error) {
	setting := v.env.Config.Reflection.Event
	if setting.Workers == 0 {
		v.env.Log.Info("events of the provider are not reflected")
		return func() {}, nil
	}
	there, err := metadata.NewForConfig(c.provider.config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client of the provider: %w", err)
	}
	here, err := metadata.NewForConfig(v.home.plain.config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client: %w", err)
	}
	objects := kinds.ObjectSubjects{Home: here, Provider: there, Origin: v.env.Config.ClusterID, Destination: c.destination, Reflects: c.reflects}
	events := kinds.NewEvents(kinds.EventsConfig{
		Home: v.home.fenced.kube, Provider: c.provider.kube, Namespaces: c.namespaces, Node: v.name, Origin: v.env.Config.ClusterID, Destination: c.destination,
		Chosen: func(annotations map[string]string) bool {
			chosen, _ := forge.Reflects(forge.Policy(setting.Type), annotations) // the reflection of the object reports a contradiction
			return chosen
		},
		Pods: c.pods.Subject, Objects: objects.Subject, Gate: c.check.Gate, Busy: c.pods.Waiting,
		Dropped: func(reason string) { v.eventsDropped.WithLabelValues(reason).Inc() },
		Log:     v.env.Log.Named("events"), Workers: setting.Workers,
	})
	return loop.Start(ctx, func(ctx context.Context) {
		if err := events.Run(ctx); err != nil {
			v.env.Log.Error("events of the provider are not reflected", zap.Error(err))
		}
	}), nil
}
