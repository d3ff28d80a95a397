package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// witness calls saw with the resource version of the Lease in each successful response.
type witness struct {
	coordinationv1client.LeasesGetter

	saw func(version string)
}

// Leases implements coordinationv1client.LeasesGetter.
func (w witness) Leases(namespace string) coordinationv1client.LeaseInterface {
	return witnessed{w.LeasesGetter.Leases(namespace), w.saw}
}

type witnessed struct {
	coordinationv1client.LeaseInterface

	saw func(version string)
}

// Get implements coordinationv1client.LeaseInterface.
func (w witnessed) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return w.tell(w.LeaseInterface.Get(ctx, name, o))
}

// Create implements coordinationv1client.LeaseInterface.
func (w witnessed) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return w.tell(w.LeaseInterface.Create(ctx, lease, o))
}

// Update implements coordinationv1client.LeaseInterface.
func (w witnessed) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return w.tell(w.LeaseInterface.Update(ctx, lease, o))
}

func (w witnessed) tell(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err == nil {
		w.saw(lease.ResourceVersion)
	}
	return lease, err
}
