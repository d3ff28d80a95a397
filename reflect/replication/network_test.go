package replication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

type conf = networkingv1beta1.Configuration

func cidrs(texts ...networkingv1beta1.CIDR) []networkingv1beta1.CIDR { return texts }

// ownConf is the Configuration of rome for milan.
func ownConf(change ...func(*conf)) *conf {
	c := &conf{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", UID: "own", Generation: 4, Labels: map[string]string{"liqo.io/managed-by": "configuration"}}}
	c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidrs("10.42.0.0/16", "fd00:42::/48"), External: cidrs("10.70.0.0/16")}
	for _, f := range change {
		f(c)
	}
	return c
}

// copyOf is a copy, with the name and the spec of what it is of, in a namespace.
func copyOf(c *conf, namespace, origin string, change ...func(*conf)) *conf {
	out := &conf{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name, UID: "copy", Generation: 2, Labels: map[string]string{
		offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: origin, corev1beta1.RemoteClusterIDLabel: origin}}, Spec: c.Spec}
	for _, f := range change {
		f(out)
	}
	return out
}

func answered(own, seen networkingv1beta1.MappedCIDR, conditions ...metav1.Condition) func(*conf) {
	return func(c *conf) {
		c.Status = networkingv1beta1.ConfigurationStatus{ObservedGeneration: c.Generation, Conditions: conditions,
			Local: &networkingv1beta1.MappedNetwork{CIDR: own}, Remote: &networkingv1beta1.MappedNetwork{CIDR: seen}}
	}
}

func mapped(pod, external []networkingv1beta1.CIDR) networkingv1beta1.MappedCIDR {
	return networkingv1beta1.MappedCIDR{Pod: pod, External: external}
}

// TestAnswerConfiguration: an answer of a peer is taken as far as it answers what was said.
func TestAnswerConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		answer    func(*conf)
		own, seen networkingv1beta1.MappedCIDR
	}{
		"all": {
			answered(mapped(cidrs("10.42.0.0/16", "fd00:42::/48"), cidrs("10.70.0.0/16")), mapped(cidrs("10.80.0.0/16", "fd00:42::/48"), cidrs("10.81.0.0/16"))),
			mapped(cidrs("10.42.0.0/16", "fd00:42::/48"), cidrs("10.70.0.0/16")), mapped(cidrs("10.80.0.0/16", "fd00:42::/48"), cidrs("10.81.0.0/16")),
		},
		"another order, and what was not said": {
			answered(mapped(cidrs("10.9.0.0/16", "fd00:42::/48", "10.42.0.0/16"), cidrs("10.9.0.0/16")), mapped(cidrs("10.8.0.0/16", "fd00:1::/48", "10.80.0.0/16"), cidrs("10.7.0.0/16"))),
			mapped(cidrs("10.42.0.0/16", "fd00:42::/48"), nil), mapped(cidrs("10.80.0.0/16", "fd00:1::/48"), nil),
		},
		"views of another size, none, and nonsense": {
			answered(mapped(cidrs("10.42.0.0/16", "fd00:42::/48"), cidrs("10.70.0.0/16")), mapped(cidrs("10.80.0.0/15", "x"), nil)),
			mapped(nil, nil), mapped(nil, nil),
		},
		"views of another family": {
			answered(mapped(cidrs("10.42.0.0/16"), nil), mapped(cidrs("fd00::/16"), nil)),
			mapped(nil, nil), mapped(nil, nil),
		},
	} {
		t.Run(name, func(t *testing.T) {
			written := ownConf()
			answerConfiguration(copyOf(written, "liqo-tenant-rome", "rome", tc.answer), written)
			require.Equal(t, int64(4), written.Status.ObservedGeneration, "it is told as the generation here")
			if len(tc.own.Pod) == 0 {
				require.Nil(t, written.Status.Local)
				require.Nil(t, written.Status.Remote)
				return
			}
			require.Equal(t, tc.own, written.Status.Local.CIDR)
			require.Equal(t, tc.seen, written.Status.Remote.CIDR)
		})
	}
	before := ownConf(answered(mapped(cidrs("10.42.0.0/16"), nil), mapped(cidrs("10.80.0.0/16"), nil)))
	want := before.DeepCopy()
	answerConfiguration(copyOf(before, "liqo-tenant-rome", "rome"), before)
	require.Equal(t, want, before, "without an answer the old one stays")

	now := metav1.Now()
	told := copyOf(before, "liqo-tenant-rome", "rome", answered(mapped(nil, nil), mapped(nil, nil),
		metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Invalid", Message: "no", LastTransitionTime: now},
		metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "X", LastTransitionTime: now}))
	told.Status.ObservedGeneration = 1 // of an older spec
	answerConfiguration(told, before)
	require.Len(t, before.Status.Conditions, 1)
	require.Equal(t, "Invalid", before.Status.Conditions[0].Reason)
	require.Equal(t, int64(4), before.Status.ObservedGeneration, "as before")
}

// networks is rome, with its cache, and milan.
type networks struct {
	*negotiation
	published bool
}

func newNetworks(t *testing.T, home, remote []runtime.Object) *networks {
	n := &networks{negotiation: newNegotiation(t, home, remote)}
	factory := externalversions.NewSharedInformerFactory(n.home, 0)
	n.cfg.Configurations = factory.Networking().V1beta1().Configurations()
	n.cfg.NetworkPublished = func(context.Context, string) (bool, error) { return n.published, nil }
	n.cfg.Kube = corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan"}})
	n.cfg.Configurations.Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return n
}

func (n *networks) out() *pair[*conf] {
	p := newPair(n.cfg, configurationsOut("rome", n.cfg.NetworkPublished), n.cfg.Configurations.Informer(), "milan", n.way())
	return started(n.t, p, &p.factory)
}

func (n *networks) in(held bool) *pull[*conf] {
	p := newPull(n.cfg, configurationsIn("rome", func() bool { return held }), n.cfg.Configurations.Informer(), "milan", n.way())
	return started(n.t, p, &p.factory)
}

func (n *networks) conf(c *fake.Clientset, namespace, name string) *conf {
	n.t.Helper()
	return kubetest.Find(n.t, c.NetworkingV1beta1().Configurations(namespace), name)
}

func TestConfigurationOut(t *testing.T) {
	drifted := func(c *conf) { c.Spec.Local.CIDR.Pod = cidrs("10.1.0.0/16") }
	for name, tc := range map[string]struct {
		remote *conf
		writes int
	}{
		"new":     {nil, 1},
		"drifted": {copyOf(ownConf(), "liqo-tenant-rome", "rome", drifted), 1},
		"equal":   {copyOf(ownConf(), "liqo-tenant-rome", "rome"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var remote []runtime.Object
			if tc.remote != nil {
				remote = append(remote, tc.remote)
			}
			n := newNetworks(t, []runtime.Object{ownConf()}, remote)
			require.NoError(t, n.out().sync(t.Context(), milanKey))
			got := n.conf(n.remote, "liqo-tenant-rome", "milan")
			require.Equal(t, ownConf().Spec, got.Spec)
			require.Equal(t, copyOf(ownConf(), "", "rome").Labels, got.Labels)
			require.Equal(t, tc.writes, writes(n.remote))
		})
	}

	// The answer comes back.
	n := newNetworks(t, []runtime.Object{ownConf()}, []runtime.Object{copyOf(ownConf(), "liqo-tenant-rome", "rome",
		answered(mapped(cidrs("10.42.0.0/16"), nil), mapped(cidrs("10.80.0.0/16"), nil)))})
	require.NoError(t, n.out().sync(t.Context(), milanKey))
	require.Equal(t, cidrs("10.80.0.0/16"), n.conf(n.home, "liqo-tenant-milan", "milan").Status.Remote.CIDR.Pod)
	require.Zero(t, writes(n.remote))

	// A peer that refuses it is shown, and that goes with its acceptance.
	n = newNetworks(t, []runtime.Object{ownConf()}, nil)
	n.remote.PrependReactor("create", "configurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configurations"}, "milan", errors.New("no rights"))
	})
	require.Error(t, n.out().sync(t.Context(), milanKey))
	ready := n.conf(n.home, "liqo-tenant-milan", "milan").Status.Conditions
	require.Len(t, ready, 1)
	require.Equal(t, networkingv1beta1.ReasonReplicationFailed, ready[0].Reason)
	mended := &conf{Status: networkingv1beta1.ConfigurationStatus{Conditions: ready}}
	configurationsOut("rome", nil).fail("", time.Time{}, mended)
	require.Empty(t, mended.Status.Conditions)
}

// TestConfigurationWithdrawn: the copy goes when nothing here will publish it again.
func TestConfigurationWithdrawn(t *testing.T) {
	n := newNetworks(t, nil, []runtime.Object{copyOf(ownConf(), "liqo-tenant-rome", "rome")})
	p := n.out()
	n.published = true
	require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in")
	n.clk.Step(time.Hour)
	require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in")
	require.NotNil(t, n.conf(n.remote, "liqo-tenant-rome", "milan"), "it is about to be made again")
	n.published = false
	require.NoError(t, p.sync(t.Context(), milanKey))
	require.Nil(t, n.conf(n.remote, "liqo-tenant-rome", "milan"))
}

// theirs is the Configuration of milan for rome, as it is in milan.
func theirs(change ...func(*conf)) *conf {
	c := &conf{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", UID: "there", Generation: 7}}
	c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: cidrs("10.44.0.0/16"), External: cidrs("10.71.0.0/16")}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestConfigurationIn(t *testing.T) {
	romeKey := loop.Key{Namespace: "liqo-tenant-milan", Name: "rome"}
	changed := func(c *conf) { c.Spec.MTU = 1400 }
	view := answered(mapped(cidrs("10.44.0.0/16"), cidrs("10.71.0.0/16")), mapped(cidrs("10.90.0.0/16"), cidrs("10.71.0.0/16")))

	n := newNetworks(t, nil, []runtime.Object{theirs()})
	require.NoError(t, n.in(true).sync(t.Context(), romeKey))
	want := copyOf(theirs(), "liqo-tenant-milan", "milan")
	require.Equal(t, want.Labels, n.conf(n.home, "liqo-tenant-milan", "rome").Labels)
	require.Equal(t, want.Spec, n.conf(n.home, "liqo-tenant-milan", "rome").Spec)
	require.Zero(t, writes(n.remote))

	n = newNetworks(t, []runtime.Object{copyOf(theirs(), "liqo-tenant-milan", "milan")}, []runtime.Object{theirs(changed)})
	require.NoError(t, n.in(true).sync(t.Context(), romeKey))
	require.Equal(t, int32(1400), n.conf(n.home, "liqo-tenant-milan", "rome").Spec.MTU)

	n = newNetworks(t, []runtime.Object{copyOf(theirs(), "liqo-tenant-milan", "milan", view)}, []runtime.Object{theirs()})
	require.NoError(t, n.in(true).sync(t.Context(), romeKey))
	got := n.conf(n.remote, "liqo-tenant-rome", "rome").Status
	require.Equal(t, int64(7), got.ObservedGeneration)
	require.Equal(t, cidrs("10.90.0.0/16"), got.Remote.CIDR.Pod)
	require.Zero(t, writes(n.home))

	// What this API server does not take is answered.
	n = newNetworks(t, nil, []runtime.Object{theirs()})
	n.home.PrependReactor("create", "configurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Configuration"}, "rome", nil)
	})
	require.NoError(t, n.in(true).sync(t.Context(), romeKey))
	require.Equal(t, networkingv1beta1.ReasonInvalid, n.conf(n.remote, "liqo-tenant-rome", "rome").Status.Conditions[0].Reason)

	// An impostor's is not taken.
	n = newNetworks(t, nil, []runtime.Object{theirs()})
	n.identity = errors.New("another cluster")
	require.ErrorContains(t, n.in(true).sync(t.Context(), romeKey), "another cluster")
	require.Nil(t, n.conf(n.home, "liqo-tenant-milan", "rome"))
}

// TestConfigurationGone: that of a peer goes at once when this cluster has none for it any
// more; else a while later, for the peer may have been restored from a backup.
func TestConfigurationGone(t *testing.T) {
	romeKey := loop.Key{Namespace: "liqo-tenant-milan", Name: "rome"}
	n := newNetworks(t, []runtime.Object{copyOf(theirs(), "liqo-tenant-milan", "milan")}, nil)
	require.NoError(t, n.in(false).sync(t.Context(), romeKey))
	require.Nil(t, n.conf(n.home, "liqo-tenant-milan", "rome"))

	n = newNetworks(t, []runtime.Object{copyOf(theirs(), "liqo-tenant-milan", "milan")}, nil)
	p := n.in(true)
	require.ErrorContains(t, p.sync(t.Context(), romeKey), "again in")
	require.NotNil(t, n.conf(n.home, "liqo-tenant-milan", "rome"))
	n.clk.Step(vanishedHold)
	require.NoError(t, p.sync(t.Context(), romeKey))
	require.Nil(t, n.conf(n.home, "liqo-tenant-milan", "rome"))
}

// TestFlows: a peer that has rights here pushes its Configuration itself.
func TestFlows(t *testing.T) {
	n := newNetworks(t, nil, nil)
	names := func(pull bool) (out []string) {
		way := n.way()
		way.PullNetwork = pull
		for _, f := range n.cfg.flows("milan", way) {
			if named, ok := f.(interface{ Name() string }); ok {
				out = append(out, named.Name())
			}
		}
		return out
	}
	require.Equal(t, []string{"replica-NamespaceMap-milan", "replica-ResourceRequest-milan", "replica-ResourceOffer-milan", "replica-Configuration-milan"}, names(false))
	require.Equal(t, append(names(false), "replica-ConfigurationOfPeer-milan"), names(true))
}
