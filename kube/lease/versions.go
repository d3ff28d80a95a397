package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// versionReporter reports the resource version of the Lease with each answer.
type versionReporter struct {
	coordinationv1client.LeasesGetter

	saw func(version string)
}

// Leases implements coordinationv1client.LeasesGetter.
func (r versionReporter) Leases(namespace string) coordinationv1client.LeaseInterface {
	return reportingLeases{r.LeasesGetter.Leases(namespace), r.saw}
}

type reportingLeases struct {
	coordinationv1client.LeaseInterface

	saw func(version string)
}

// Get implements coordinationv1client.LeaseInterface.
func (r reportingLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return r.report(r.LeaseInterface.Get(ctx, name, o))
}

// Create implements coordinationv1client.LeaseInterface.
func (r reportingLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return r.report(r.LeaseInterface.Create(ctx, lease, o))
}

// Update implements coordinationv1client.LeaseInterface.
func (r reportingLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return r.report(r.LeaseInterface.Update(ctx, lease, o))
}

// Watch implements coordinationv1client.LeaseInterface.
func (r reportingLeases) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := r.LeaseInterface.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		if lease, ok := event.Object.(*coordinationv1.Lease); ok {
			r.saw(lease.ResourceVersion)
		}
		return event, true
	}), nil
}

func (r reportingLeases) report(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err == nil {
		r.saw(lease.ResourceVersion)
	}
	return lease, err
}
