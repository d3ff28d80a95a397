package timed

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// staleAtMost is how long what is said of a peering may be older than what there is of it,
// while all roles run.
const staleAtMost = 10 * time.Second

// use is that of a cluster by another.
type use struct{ consumer, provider *site.Site }

func (w *world) romeUses() use  { return use{w.rome, w.milan} }
func (w *world) milanUses() use { return use{w.milan, w.rome} }

// here is the namespace of the provider in the consumer, there that of the consumer in the
// provider.
func (u use) here() string  { return corev1beta1.TenantNamespace(u.provider.Name) }
func (u use) there() string { return corev1beta1.TenantNamespace(u.consumer.Name) }

// witness sees, past the fronts, each time that a consumer begins to say that it uses a
// provider, and looks at once whether it can.
type witness struct {
	use

	mu sync.Mutex
	// said has been true at the last sight.
	said  map[string]bool
	wrong []string
}

// newWitness watches until the test ends.
func newWitness(t *testing.T, of use) *witness {
	t.Helper()
	seen := &witness{use: of, said: map[string]bool{}}
	records := of.consumer.Liqod().CoreV1beta1().ForeignClusters()
	list, err := records.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
	stream, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return records.Watch(ctx, options)
		},
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for event := range stream.ResultChan() {
			seen.see(t.Context(), event)
		}
	})
	t.Cleanup(func() {
		stream.Stop()
		wg.Wait()
	})
	return seen
}

// see looks at a change of the record of the provider.
func (s *witness) see(ctx context.Context, event watch.Event) {
	if event.Type == watch.Error {
		s.note(fmt.Sprintf("the watch of the ForeignClusters ended: %v", event.Object))
		return
	}
	fc, ok := event.Object.(*corev1beta1.ForeignCluster)
	if !ok || event.Type == watch.Bookmark {
		return
	}
	ready := s.complete
	if meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionOutgoingPeering) == nil { // it is being left, or not used yet
		ready = s.identified
		if !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionAuthenticated) {
			ready = func(context.Context) error { return nil }
		}
	}
	for kind, needs := range map[string]func(context.Context) error{
		corev1beta1.ConditionReady: ready, corev1beta1.ConditionOutgoingPeering: s.complete,
	} {
		said := event.Type != watch.Deleted && meta.IsStatusConditionTrue(fc.Status.Conditions, kind)
		begins := said && !s.said[kind]
		s.said[kind] = said
		if !begins {
			continue
		}
		if err := s.look(ctx, needs); err != nil {
			s.note(fmt.Sprintf("in %s ForeignCluster %s began to say %s=True while %v", s.consumer.Name, s.provider.Name, kind, err))
		}
	}
}

// look asks until there is an answer: an API server may be paused.
func (s *witness) look(ctx context.Context, needs func(context.Context) error) (missing error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := lab.Eventually(ctx, func(ctx context.Context) error {
		missing = needs(ctx)
		if missing == nil || isMissing(missing) {
			return nil
		}
		return missing
	})
	if err != nil {
		return err
	}
	return missing
}

// lacking says that a part of a peering is not there.
type lacking string

// Error implements error.
func (l lacking) Error() string { return string(l) }

func isMissing(err error) bool {
	_, ok := err.(lacking)
	return ok
}

func absence(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return lacking("there is no " + what)
	}
	return err
}

func (s *witness) note(wrong string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, wrong)
}

// take returns what was wrong, and forgets it.
func (s *witness) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.wrong = nil }()
	return s.wrong
}

// settled waits until what the consumer says of the provider is so.
func (s *witness) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, staleAtMost)
	defer cancel()
	return lab.Eventually(ctx, func(ctx context.Context) error {
		fc, err := s.consumer.Liqod().CoreV1beta1().ForeignClusters().Get(ctx, s.provider.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil || !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionOutgoingPeering) {
			return err
		}
		if err := s.complete(ctx); err != nil {
			return fmt.Errorf("in %s ForeignCluster %s says that it is used, and %w", s.consumer.Name, s.provider.Name, err)
		}
		return nil
	})
}

func (s *witness) identified(ctx context.Context) error {
	_, err := s.credentials(ctx)
	return err
}

func (s *witness) complete(ctx context.Context) error {
	_, err := s.whole(ctx, "")
	return err
}

// credentials returns the consumer's kubeconfig of the provider.
func (u use) credentials(ctx context.Context) ([]byte, error) {
	secret, err := u.consumer.Client().CoreV1().Secrets(u.here()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absence("identity", err)
	}
	if len(secret.Data[corev1beta1.KubeconfigSecretKey]) == 0 {
		return nil, lacking("the identity is a key without a certificate")
	}
	return secret.Data[corev1beta1.KubeconfigSecretKey], nil
}

// whole looks whether the consumer has all that it takes to use the provider: an identity, an offer that
// is accepted, a VirtualNode, and there a Quota; with so many CPUs, if that is said. It
// returns the identity.
func (u use) whole(ctx context.Context, cpu string) ([]byte, error) {
	identity, err := u.credentials(ctx)
	if err != nil {
		return nil, err
	}
	offer, err := u.consumer.Liqod().SharingV1alpha1().ResourceOffers(u.here()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absence("offer", err)
	}
	if offer.Status.Phase != sharingv1alpha1.OfferAccepted {
		return nil, lacking(fmt.Sprintf("the offer is %q", offer.Status.Phase))
	}
	vn, err := u.consumer.Liqod().OffloadingV1beta1().VirtualNodes(u.here()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absence("VirtualNode", err)
	}
	quota, err := u.provider.Liqod().OffloadingV1beta1().Quotas(u.there()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, absence("Quota", err)
	}
	for what, have := range map[string]string{"VirtualNode": vn.Spec.ResourceQuota.Hard.Cpu().String(), "Quota": quota.Spec.Resources.Cpu().String()} {
		if cpu != "" && have != cpu {
			return nil, lacking(fmt.Sprintf("the %s has %s CPUs, not %s", what, have, cpu))
		}
	}
	return identity, nil
}
