package link

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

const (
	server = corev1beta1.ConditionAPIServer
	ready  = corev1beta1.ConditionReady
)

func TestPeerLife(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan(""))
		p := newPeer("uid-1")
		w.addPeer("k1", p)
		stop := w.run()
		w.awaits(ready, "Unknown NoCredentials")
		require.Nil(t, w.condition(server))
		require.Equal(t, corev1beta1.RoleUnknown, w.cluster("milan").Status.Role)

		secrets := w.core.CoreV1().Secrets("liqo-tenant-milan")
		kubetest.Create(t, secrets, secret("milan", "kubeconfig", "k1"))
		w.awaits(ready, "True AllChecksPassed")
		s := w.cluster("milan").Status
		require.EqualValues(t, "uid-1", s.ClusterUID)
		require.Equal(t, "https://k1", s.APIServerURL)
		require.Equal(t, corev1beta1.RoleProvider, s.Role)
		require.Equal(t, corev1beta1.TenantNamespaces{Local: "liqo-tenant-milan", Remote: "liqo-tenant-rome"}, s.TenantNamespace)
		before := w.settled()
		require.Equal(t, before, w.settled(), "a steady state writes nothing")

		p.set(errors.New("connection refused"))
		w.awaits(server, "False APIServerNotReady")
		require.Contains(t, w.condition(server).Message, "connection refused")
		w.awaits(ready, "False APIServerNotReady")
		p.set(nil)
		w.awaits(ready, "True AllChecksPassed")

		// After a change of the leader, the verdict stays, and nothing is written.
		before = w.settled()
		stop()
		stop = w.run()
		require.Equal(t, before, w.settled())
		require.True(t, w.is("milan", ready, "True AllChecksPassed"))
		stop()
		require.Empty(t, w.conditions.probing.running())
		require.Empty(t, w.directory.watching.running())
		w.run()

		require.NoError(t, secrets.Delete(t.Context(), "kubeconfig", metav1.DeleteOptions{}))
		w.awaits(ready, "Unknown NoCredentials")
		require.Nil(t, w.condition(server))
		require.Equal(t, corev1beta1.RoleUnknown, w.cluster("milan").Status.Role)
		vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "liqo-tenant-milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
		kubetest.Create(t, w.liqo.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), vn)
		w.eventually("provider", func() bool { return w.cluster("milan").Status.Role == corev1beta1.RoleProvider })
	})
}

// TestFreshProcessKeepsVerdict: a new process keeps the conditions of a peer until it has
// read the peer's credentials, and writes nothing if they are unchanged.
func TestFreshProcessKeepsVerdict(t *testing.T) {
	t.Parallel()
	down := newPeer("uid-1")
	var known *corev1beta1.ForeignCluster
	synctest.Test(t, func(t *testing.T) {
		before := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"), secret("milan", "kubeconfig", "k1"))
		before.addPeer("k1", down)
		stop := before.run()
		before.awaits(server, "True APIServerReady")
		down.set(errors.New("connection refused"))
		before.awaits(ready, "False APIServerNotReady")
		before.settled()
		stop()
		known = before.cluster("milan")
	})

	for name, tc := range map[string]struct {
		objects []runtime.Object
		unread  bool // the directory must read the Secrets before the conditions change
		after   string
	}{
		"as before":           {[]runtime.Object{tenant("milan"), secret("milan", "kubeconfig", "k1")}, true, "False APIServerNotReady"},
		"credentials gone":    {[]runtime.Object{tenant("milan")}, true, ""},
		"namespace gone, too": {nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				w := newWorld(t, append(tc.objects, known.DeepCopy())...)
				w.addPeer("k1", down)
				kubetest.Run(t, func(ctx context.Context) error { return w.conditions.Run(ctx, 2) })
				if tc.unread {
					require.Zero(t, w.settled())
					require.Equal(t, known.Status, w.cluster("milan").Status)
				}
				kubetest.Run(t, w.directory.Run)
				if tc.after != "" {
					require.Zero(t, w.settled(), "nothing has changed")
					require.True(t, w.is("milan", server, tc.after))
					require.Equal(t, known.Status, w.cluster("milan").Status)
					return
				}
				w.eventually("nothing can be asked", func() bool { return w.condition(server) == nil })
				require.Equal(t, corev1beta1.RoleConsumer, w.cluster("milan").Status.Role)
				require.Equal(t, 1, w.settled())
			})
		})
	}
}

func TestReplacedCluster(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		fc := milan("")
		fc.Status.ClusterUID = "uid-1"
		w := newWorld(t, tenant("milan"), fc, secret("milan", "kubeconfig", "k2"))
		other, right := newPeer("uid-2"), newPeer("uid-1")
		w.addPeer("k2", other)
		w.addPeer("k1", right)
		w.run()
		w.awaits(server, "False ClusterReplaced")
		require.EqualValues(t, "uid-1", w.cluster("milan").Status.ClusterUID)
		require.ErrorIs(t, w.conditions.Identity(t.Context(), "milan", other.core), ErrReplaced)
		require.NoError(t, w.conditions.Identity(t.Context(), "milan", right.core))

		kubetest.Update(t, w.core.CoreV1().Secrets("liqo-tenant-milan"), secret("milan", "kubeconfig", "k1"))
		w.awaits(server, "True APIServerReady")
	})
}

func TestBrokenCredentials(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ kubeconfig, want string }{
		"no key":     {"", "has no key kubeconfig"},
		"bad config": {"nonsense", "accepted is a kubeconfig with inline credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				w := newWorld(t, tenant("milan"), milan(""), secret("milan", "a", tc.kubeconfig))
				w.run()
				w.awaits(server, "False InvalidCredentials")
				require.Contains(t, w.condition(server).Message, tc.want)
				w.addPeer("good", newPeer("u"))
				kubetest.Create(t, w.core.CoreV1().Secrets("liqo-tenant-milan"), secret("milan", "b", "good"))
				w.awaits(server, "True APIServerReady")
			})
		})
	}
}

// TestRightsTakenBack: a peer that has revoked this cluster's rights counts as not
// answering, so the end of a peering does not wait for it.
func TestRightsTakenBack(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan(""), secret("milan", "a", "k"))
		p := newPeer("u")
		var taken atomic.Bool
		p.core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return taken.Load(), nil, apierrors.NewForbidden(rbacv1.Resource("namespaces"), "kube-system", errors.New("no right"))
		})
		w.addPeer("k", p)
		taken.Store(true)
		w.run()
		w.awaits(server, "Unknown IdentityUnknown")
		w.awaits(ready, "Unknown IdentityUnknown")
		require.Contains(t, w.condition(server).Message, "no right")
		require.Empty(t, w.cluster("milan").Status.ClusterUID)
		taken.Store(false)
		w.awaits(server, "True APIServerReady")
		taken.Store(true)
		require.True(t, apierrors.IsForbidden(w.conditions.Identity(t.Context(), "milan", p.core)))
		w.awaits(server, "Unknown IdentityUnknown")
		taken.Store(false)
		w.awaits(server, "True APIServerReady")
		taken.Store(true)
		w.awaits(server, "Unknown IdentityUnknown") // though nothing is written to it
		require.EqualValues(t, "u", w.cluster("milan").Status.ClusterUID)
		taken.Store(false)
		w.conditions.loop.Add(loop.Key{Name: "milan"})
		w.awaits(server, "True APIServerReady")
	})
}

// TestEndingPeer: a ForeignCluster that is being deleted is handled until it is gone. The
// end of the peering depends on whether the peer answers, and ignores the answers of
// another cluster.
func TestEndingPeer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		fc := milan("liqo.io:peer:milan:1")
		fc.DeletionTimestamp, fc.Finalizers = &metav1.Time{Time: time.Now()}, []string{corev1beta1.ForeignClusterFinalizer}
		fc.Status.ClusterUID = "u"
		w := newWorld(t, tenant("milan"), fc, secret("milan", "a", "k"))
		p := newPeer("u")
		w.addPeer("k", p)
		w.run()
		w.awaits(server, "True APIServerReady")
		require.Equal(t, corev1beta1.RoleProvider, w.cluster("milan").Status.Role, "it has no rights any more")
		p.set(errors.New("no route to host"))
		w.awaits(server, "False APIServerNotReady")

		require.NoError(t, w.conditions.Identity(t.Context(), "milan", p.core))
		require.ErrorIs(t, w.conditions.Identity(t.Context(), "milan", newPeer("another").core), ErrReplaced)
	})
}

// TestIdentityOfTwoRecords: a second ForeignCluster of a peer without a recorded UID does
// not make another cluster acceptable.
func TestIdentityOfTwoRecords(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		for _, name := range []string{"a-milan", "z-milan"} {
			fc, other := milan(""), milan("")
			fc.Status.ClusterUID, other.Name, other.Status.ClusterUID = "u", name, "v"
			w := newWorld(t, fc, other)
			require.ErrorIs(t, w.conditions.Identity(t.Context(), "milan", newPeer("v").core), ErrReplaced)
			require.ErrorIs(t, w.conditions.Identity(t.Context(), "milan", newPeer("w").core), ErrReplaced)
		}
	})
}

func TestDirectory(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		foreign := tenant("oslo")
		foreign.Name = "somewhere" // has the labels of oslo's tenant namespace
		stray := secret("oslo", "k", "k1")
		stray.Namespace = "somewhere"
		unlabelled := secret("milan", "other", "k1")
		unlabelled.Labels = nil
		w := newWorld(t, foreign, stray, unlabelled, tenant("turin"), secret("turin", "k", "k1"))
		w.addPeer("k1", newPeer("u"))
		told := make(chan string, 100)
		w.directory.Subscribe(func(id string) { told <- id })
		w.run()
		require.Equal(t, "turin", <-told)
		kubetest.Create(t, w.core.CoreV1().Namespaces(), tenant("milan"))
		kubetest.Create(t, w.core.CoreV1().Secrets("liqo-tenant-milan"), secret("milan", "k", "k1"))
		require.Equal(t, "milan", <-told)
		e, ok := w.directory.Endpoint("milan")
		require.True(t, ok)
		require.Equal(t, "liqo-tenant-milan/k", e.Secret)
		_, ok = w.directory.Endpoint("oslo")
		require.False(t, ok)

		require.NoError(t, w.core.CoreV1().Namespaces().Delete(t.Context(), "liqo-tenant-milan", metav1.DeleteOptions{}))
		require.Equal(t, "milan", <-told)
		_, ok = w.directory.Endpoint("milan")
		require.False(t, ok)
		for _, a := range w.core.Actions() {
			if a.GetResource().Resource == "secrets" {
				require.NotEmpty(t, a.GetNamespace(), "Secrets are looked at in tenant namespaces only")
			}
		}
	})
}

func TestRights(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"))
		w.run()
		roles, wide := w.core.RbacV1().RoleBindings("liqo-tenant-milan"), w.core.RbacV1().ClusterRoleBindings()
		role := func(name string) string {
			b := kubetest.Find(t, roles, name)
			if b == nil {
				return ""
			}
			return b.RoleRef.Name + " " + b.Subjects[0].Name
		}
		cluster := func() string {
			b := kubetest.Find(t, wide, "liqod-peer-cluster:milan")
			if b == nil {
				return ""
			}
			return b.RoleRef.Name + " " + b.Subjects[0].Name
		}
		bound := func(user string) func() bool {
			return func() bool {
				return role(PeerTenantRole) == PeerTenantRole+" "+user && cluster() == PeerClusterRole+" "+user
			}
		}
		unbound := func() bool { return role(PeerTenantRole) == "" && cluster() == "" }
		w.eventually("controller", func() bool { return role(ControllerTenantRole) == ControllerTenantRole+" liqod-controller" })
		w.eventually("peer", bound("liqo.io:peer:milan:1"))
		w.eventually("consumer", func() bool { return w.cluster("milan").Status.Role == corev1beta1.RoleConsumer })
		w.awaits(ready, "Unknown NothingChecked")

		set := func(user string) {
			fc := w.cluster("milan")
			fc.Spec.UserName = user
			kubetest.Update(t, w.liqo.CoreV1beta1().ForeignClusters(), fc)
		}
		w.settled()
		set("liqo.io:peer:milan:2")
		w.eventually("the new user", bound("liqo.io:peer:milan:2"))
		require.NoError(t, roles.Delete(t.Context(), PeerTenantRole, metav1.DeleteOptions{}))
		require.NoError(t, wide.Delete(t.Context(), "liqod-peer-cluster:milan", metav1.DeleteOptions{}))
		w.eventually("drift is repaired", bound("liqo.io:peer:milan:2"))
		w.settled()
		set("liqo.io:peer:turin:1")
		w.eventually("another peer's user has no rights", unbound)
		w.eventually("and it is told", func() bool {
			c := w.condition(ready)
			return c != nil && c.Status == metav1.ConditionFalse && contains(c.Message, "is not this peer's")
		})
		w.settled()
		set("system:serviceaccount:liqo-tenant-milan:peer")
		w.eventually("a service account", bound("system:serviceaccount:liqo-tenant-milan:peer"))
		require.NoError(t, w.liqo.CoreV1beta1().ForeignClusters().Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("the peer is gone", unbound)
		require.NotEmpty(t, role(ControllerTenantRole))
	})
}

// TestStaleCacheTakesNoRights: a stale cache shows the ForeignCluster as missing; the
// rights stay.
func TestStaleCacheTakesNoRights(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"))
		w.run()
		w.eventually("bound", func() bool {
			return kubetest.Find(t, w.core.RbacV1().RoleBindings("liqo-tenant-milan"), PeerTenantRole) != nil
		})
		before := w.settled()
		require.NoError(t, w.liqoInformers.Core().V1beta1().ForeignClusters().Informer().GetStore().Delete(milan("")))
		w.rights.Add(ClusterKey(milan(""))[0])
		require.Equal(t, before, w.settled())
	})
}

func TestConsumerWithoutTenantNamespace(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		going, now := tenant("milan"), metav1.Now()
		going.DeletionTimestamp, going.Finalizers = &now, []string{"test/hold"}
		w := newWorld(t, going, milan("liqo.io:peer:milan:1"))
		w.run()
		w.awaits(ready, "Unknown NoCredentials")
		require.Contains(t, w.condition(ready).Message, "namespace liqo-tenant-milan")
		w.settled()
		require.NoError(t, w.core.CoreV1().Namespaces().Delete(t.Context(), "liqo-tenant-milan", metav1.DeleteOptions{}))
		w.awaits(ready, "Unknown NothingChecked")
		ns := kubetest.Get(t, w.core.CoreV1().Namespaces(), "liqo-tenant-milan")
		require.Equal(t, tenant("milan").Labels, ns.Labels, "the controller makes the namespace of a peer with rights")
		kubetest.Get(t, w.core.RbacV1().RoleBindings(ns.Name), PeerTenantRole)
	})
}

// TestNoTenantNamespaceAfterTheEnd: the end of a peering takes the rights, and then deletes the
// namespace. A cache that still shows the rights makes no other one.
func TestNoTenantNamespaceAfterTheEnd(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, milan(""))
		w.run()
		w.settled()
		stale := milan("liqo.io:peer:milan:1")
		require.NoError(t, w.liqoInformers.Core().V1beta1().ForeignClusters().Informer().GetStore().Update(stale))
		w.rights.Add(ClusterKey(stale)[0])
		w.settled()
		require.Nil(t, kubetest.Find(t, w.core.CoreV1().Namespaces(), "liqo-tenant-milan"))
	})
}

// TestRenewedCredentials: renewed credentials of the same user do not interrupt running
// work.
func TestRenewedCredentials(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan(""), secret("milan", "a", "k1"))
		p := newPeer("u")
		p.renews = map[string]bool{"k2": true}
		w.addPeer("k1", p)
		w.addPeer("k3", newPeer("u"))
		told := make(chan string, 100)
		w.directory.Subscribe(func(id string) { told <- id })
		w.run()
		w.awaits(server, "True APIServerReady")
		require.Equal(t, "milan", <-told)
		first, _ := w.directory.Endpoint("milan")
		before := w.settled()

		secrets := w.core.CoreV1().Secrets("liqo-tenant-milan")
		kubetest.Update(t, secrets, secret("milan", "a", "k2"))
		w.eventually("the endpoint has the new credentials", func() bool {
			e, _ := w.directory.Endpoint("milan")
			return e.digest != first.digest
		})
		renewed, _ := w.directory.Endpoint("milan")
		require.Equal(t, first.Revision, renewed.Revision)
		require.Equal(t, before+1, w.settled(), "but for the Secret nothing is written")
		require.Empty(t, told, "nobody has to begin anew")

		kubetest.Update(t, secrets, secret("milan", "a", "k3"))
		require.Equal(t, "milan", <-told, "those of another user are another way")
	})
}

// TestTenant: a tenant namespace enforces the level restricted, unless people have chosen
// another one.
func TestTenant(t *testing.T) {
	good := tenant("milan").Labels
	for name, tc := range map[string]struct{ have, want map[string]string }{
		"missing":             {nil, good},
		"made by people":      {map[string]string{"team": "x"}, with(good, "team", "x")},
		"without a level":     {map[string]string{corev1beta1.TenantNamespaceLabel: "true", corev1beta1.RemoteClusterIDLabel: "milan"}, good},
		"with a chosen level": {map[string]string{corev1beta1.PodSecurityLabel: "baseline"}, with(good, corev1beta1.PodSecurityLabel, "baseline")},
		"complete":            {good, good},
	} {
		t.Run(name, func(t *testing.T) {
			kube := corefake.NewClientset()
			if tc.have != nil {
				kubetest.Create(t, kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: tc.have}})
			}
			for range 2 {
				require.NoError(t, Tenant(t.Context(), kube, "milan"))
			}
			ns := kubetest.Get(t, kube.CoreV1().Namespaces(), "liqo-tenant-milan")
			require.Equal(t, tc.want, ns.Labels)
		})
	}
}

// TestTenantsWithoutALevel: the controller adds the level to tenant namespaces that lack it, and to
// no other namespace.
func TestTenantsWithoutALevel(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		old, other := tenant("milan"), tenant("turin")
		delete(old.Labels, corev1beta1.PodSecurityLabel)
		other.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: "turin"}
		w := newWorld(t, old, other)
		w.run()
		w.settled()
		level := func(name string) string {
			ns := kubetest.Get(t, w.core.CoreV1().Namespaces(), name)
			return ns.Labels[corev1beta1.PodSecurityLabel]
		}
		require.Equal(t, "restricted", level(old.Name))
		require.Empty(t, level(other.Name))
		kubetest.Get(t, w.core.RbacV1().RoleBindings(old.Name), ControllerTenantRole)
		w.core.ClearActions()
		require.Zero(t, w.settled())
	})
}

// with returns labels with one more.
func with(labels map[string]string, key, value string) map[string]string {
	labels = maps.Clone(labels)
	labels[key] = value
	return labels
}
