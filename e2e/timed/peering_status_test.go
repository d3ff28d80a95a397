package timed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// staleAtMost is how long the status of a peering may be out of date while all roles run.
const staleAtMost = 10 * time.Second

// use is a consumer with one of its providers.
type use struct{ consumer, provider *site.Site }

func (w *world) romeUses() use  { return use{w.Rome, w.Milan} }
func (w *world) milanUses() use { return use{w.Milan, w.Rome} }

func (u use) tenantAtConsumer() string { return corev1beta1.TenantNamespace(u.provider.Name) }
func (u use) tenantAtProvider() string { return corev1beta1.TenantNamespace(u.consumer.Name) }

// statusWatch watches the consumer's ForeignCluster of a provider, not through the fronts. Each
// time a condition gets True it compares this at once with the objects of the peering.
type statusWatch struct {
	use
	watch *site.Watch

	mu sync.Mutex
	// status has the conditions that were True in the last event.
	status map[string]bool
	wrong  []string
}

// newStatusWatch watches until the test ends.
func newStatusWatch(t *testing.T, of use) *statusWatch {
	t.Helper()
	seen := &statusWatch{use: of, status: map[string]bool{}}
	source := cache.NewListWatchFromClient(of.consumer.Liqod().CoreV1beta1().RESTClient(), "foreignclusters", "", fields.Everything())
	var err error
	seen.watch, err = site.NewWatch(t.Context(), source, func(event watch.EventType, object runtime.Object) {
		seen.see(t.Context(), event, object.(*corev1beta1.ForeignCluster))
	})
	require.NoError(t, err)
	t.Cleanup(seen.watch.Stop)
	return seen
}

// see checks an event of the ForeignCluster.
func (s *statusWatch) see(ctx context.Context, event watch.EventType, fc *corev1beta1.ForeignCluster) {
	ready := s.complete
	if meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionOutgoingPeering) == nil { // the use is ending, or has not begun
		ready = s.identified
		if !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionAuthenticated) {
			ready = func(context.Context) error { return nil }
		}
	}
	for kind, needs := range map[string]func(context.Context) error{
		corev1beta1.ConditionReady: ready, corev1beta1.ConditionOutgoingPeering: s.complete,
	} {
		now := event != watch.Deleted && meta.IsStatusConditionTrue(fc.Status.Conditions, kind)
		begins := now && !s.status[kind]
		s.status[kind] = now
		if !begins {
			continue
		}
		if err := s.compare(ctx, needs); err != nil {
			s.note(fmt.Sprintf("in %s ForeignCluster %s got %s=True while %v", s.consumer.Name, s.provider.Name, kind, err))
		}
	}
}

// compare returns the part that is missing. It tries again while an API server is paused.
func (s *statusWatch) compare(ctx context.Context, needs func(context.Context) error) (missing error) {
	err := lab.Within(ctx, patience, func(ctx context.Context) error {
		missing = needs(ctx)
		if missing == nil || errors.Is(missing, errMissing) {
			return nil
		}
		return missing
	})
	if err != nil {
		return err
	}
	return missing
}

// errMissing is the error that a part of a peering does not exist.
var errMissing = errors.New("missing")

func absent(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %s", errMissing, what)
	}
	return err
}

func (s *statusWatch) note(wrong string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, wrong)
}

// take returns the failures, and forgets them.
func (s *statusWatch) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	wrong := s.wrong
	s.wrong = nil
	if err := s.watch.Err(); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// settled waits until the consumer reports no use that is not complete.
func (s *statusWatch) settled(ctx context.Context) error {
	return lab.Within(ctx, staleAtMost, func(ctx context.Context) error {
		fc, err := s.consumer.Liqod().CoreV1beta1().ForeignClusters().Get(ctx, s.provider.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil || !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionOutgoingPeering) {
			return err
		}
		if err := s.complete(ctx); err != nil {
			return fmt.Errorf("in %s ForeignCluster %s has OutgoingPeering=True, and %w", s.consumer.Name, s.provider.Name, err)
		}
		return nil
	})
}

func (s *statusWatch) identified(ctx context.Context) error {
	_, err := s.credentials(ctx)
	return err
}

func (s *statusWatch) complete(ctx context.Context) error {
	_, err := s.parts(ctx, "")
	return err
}

// credentials returns the consumer's kubeconfig of the provider.
func (u use) credentials(ctx context.Context) ([]byte, error) {
	secret, err := u.consumer.Client().CoreV1().Secrets(u.tenantAtConsumer()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absent("identity", err)
	}
	if len(secret.Data[corev1beta1.KubeconfigSecretKey]) == 0 {
		return nil, fmt.Errorf("%w: the certificate of the identity", errMissing)
	}
	return secret.Data[corev1beta1.KubeconfigSecretKey], nil
}

// parts requires all objects by which the consumer uses the provider: an identity, an accepted
// offer and a VirtualNode, and a Quota in the provider, with so many CPUs unless cpu is empty. It
// returns the identity.
func (u use) parts(ctx context.Context, cpu string) ([]byte, error) {
	identity, err := u.credentials(ctx)
	if err != nil {
		return nil, err
	}
	offer, err := u.consumer.Liqod().SharingV1alpha1().ResourceOffers(u.tenantAtConsumer()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absent("offer", err)
	}
	if offer.Status.Phase != sharingv1alpha1.OfferAccepted {
		return nil, fmt.Errorf("%w: the offer is %q", errMissing, offer.Status.Phase)
	}
	vn, err := u.consumer.Liqod().OffloadingV1beta1().VirtualNodes(u.tenantAtConsumer()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absent("VirtualNode", err)
	}
	quota, err := u.provider.Liqod().OffloadingV1beta1().Quotas(u.tenantAtProvider()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absent("Quota", err)
	}
	for what, have := range map[string]string{"VirtualNode": vn.Spec.ResourceQuota.Hard.Cpu().String(), "Quota": quota.Spec.Resources.Cpu().String()} {
		if cpu != "" && have != cpu {
			return nil, fmt.Errorf("%w: the %s has %s CPUs, not %s", errMissing, what, have, cpu)
		}
	}
	return identity, nil
}
