package namespace

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/shadow/rules"
)

func written(t *testing.T, user string, obj any) *admissionv1.AdmissionRequest {
	t.Helper()
	req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: user}}
	var err error
	req.Object.Raw, err = json.Marshal(obj)
	require.NoError(t, err)
	return req
}

func always() bool { return true }

func clusterIPs(string) rules.ServiceBounds { return rules.ServiceBounds{Types: []string{"ClusterIP"}} }

// TestPeerRules: the rules bind peers, whatever kind of user they have, and nobody else.
func TestPeerRules(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	bank := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "bank"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "bank.example.com"}}}}
	own := bank.DeepCopy()
	own.Namespace, own.Labels, own.Spec.Rules[0].Host = "shop-rome", map[string]string{offloadingv1beta1.OriginLabel: "rome"}, "rome.example.com"
	require.NoError(t, indexer.Add(bank))
	require.NoError(t, indexer.Add(own))
	known := true
	ingresses := PeerIngressRule{Ingresses: networkinglisters.NewIngressLister(indexer), Synced: func() bool { return known }}
	services := PeerServiceRule{Bounds: clusterIPs, Synced: func() bool { return known }}
	claims := PeerClaimRule{Allowed: rules.Allowed{StorageClasses: []string{"*"}, ProvisionedClass: func(string) bool { return false }}, Synced: func() bool { return known }}
	manual := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("manual")}}
	external := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
	for user, peer := range map[string]bool{
		"liqo.io:peer:rome:1": true, "system:serviceaccount:liqo-tenant-rome:peer-1": true,
		"system:serviceaccount:liqo-tenant-rome:vk-rome": false, "kubernetes-admin": false, "system:serviceaccount:bank:default": false,
	} {
		require.Equal(t, !peer, services.Decide(t.Context(), written(t, user, external)).Allowed, user)
		require.True(t, services.Decide(t.Context(), written(t, user, &corev1.Service{})).Allowed, user)
		require.Equal(t, !peer, claims.Decide(t.Context(), written(t, user, manual)).Allowed, user)
		require.Equal(t, !peer, ingresses.Decide(t.Context(), written(t, user, bank)).Allowed, user)
		require.Equal(t, user != "system:serviceaccount:liqo-tenant-oslo:peer-1", ingresses.Decide(t.Context(), written(t, user, own)).Allowed, user)
	}
	refused := ingresses.Decide(t.Context(), written(t, "liqo.io:peer:oslo:1", own))
	require.False(t, refused.Allowed, "another peer's")
	require.Equal(t, []string{"spec.rules[rome.example.com]"}, refused.Fields)
	known = false
	require.Equal(t, int32(503), ingresses.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", own)).Code)
	require.True(t, ingresses.Decide(t.Context(), written(t, "kubernetes-admin", own)).Allowed)
	require.Equal(t, int32(503), services.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", &corev1.Service{})).Code)
	require.Equal(t, int32(503), PeerMetadataRule{Synced: func() bool { return false }}.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", &corev1.Service{})).Code)
	require.Equal(t, int32(503), claims.Decide(t.Context(), written(t, "liqo.io:peer:rome:1", manual)).Code)
}

// TestPeersMetadata: labels and annotations that peers may not set are left out of each kind
// that they write, and those of others stay.
func TestPeersMetadata(t *testing.T) {
	t.Parallel()
	rule := PeerMetadataRule{Synced: always, Metadata: func(string) rules.Metadata {
		return rules.Metadata{Annotations: rules.Annotations{"service.kubernetes.io/topology-mode"}, Labels: rules.LeftOutLabels{"istio.io/*", "grafana_dashboard"}}
	}}
	given := metav1.ObjectMeta{
		Annotations: map[string]string{
			"note": "a", "service.kubernetes.io/topology-mode": "Auto", "cert-manager.io/cluster-issuer": "x", "volume.kubernetes.io/selected-node": "worker-1",
			"replicator.v1.mittwald.de/replicate-to": ".*", "external-dns.alpha.kubernetes.io/hostname": "www.bank.example", "theirs.example/a": "changed",
		},
		Labels: map[string]string{"app": "web", "sidecar.istio.io/inject": "true", "grafana_dashboard": "1"},
	}
	old := metav1.ObjectMeta{Annotations: map[string]string{"theirs.example/a": "1", "cert-manager.io/cluster-issuer": "x"}, Labels: map[string]string{"grafana_dashboard": "1"}}
	deleting := *old.DeepCopy()
	deleting.DeletionTimestamp = new(metav1.Now())
	note := map[string]string{"note": "a", "service.kubernetes.io/topology-mode": "Auto"}
	kept := map[string]string{"note": "a", "service.kubernetes.io/topology-mode": "Auto", "theirs.example/a": "1", "cert-manager.io/cluster-issuer": "x"}
	peer := "liqo.io:peer:rome:1"
	for _, kind := range []string{"ConfigMap", "Secret", "Service", "Ingress", "PersistentVolumeClaim"} {
		of := func(m metav1.ObjectMeta, user string, old ...metav1.ObjectMeta) *admissionv1.AdmissionRequest {
			req := written(t, user, &metav1.PartialObjectMetadata{ObjectMeta: m})
			if len(old) > 0 {
				req = rewritten(t, user, &metav1.PartialObjectMetadata{ObjectMeta: m}, &metav1.PartialObjectMetadata{ObjectMeta: old[0]})
			}
			req.Kind.Kind = kind
			return req
		}
		going := *given.DeepCopy()
		going.DeletionTimestamp = deleting.DeletionTimestamp
		for name, tc := range map[string]struct {
			req                 *admissionv1.AdmissionRequest
			annotations, labels map[string]string
		}{
			"created":       {of(given, peer), note, map[string]string{"app": "web"}},
			"by an account": {of(given, "system:serviceaccount:liqo-tenant-rome:peer-1"), note, map[string]string{"app": "web"}},
			"updated":       {of(given, peer, old), kept, map[string]string{"app": "web", "grafana_dashboard": "1"}},
			"being deleted": {of(going, peer, deleting), kept, map[string]string{"app": "web", "grafana_dashboard": "1"}},
		} {
			answer := rule.Decide(t.Context(), tc.req)
			require.True(t, answer.Allowed, name)
			require.Equal(t, []serve.Operation{
				{Op: "replace", Path: "/metadata/annotations", Value: tc.annotations}, {Op: "replace", Path: "/metadata/labels", Value: tc.labels},
			}, answer.Patch, "%s %s", kind, name)
		}
		for name, req := range map[string]*admissionv1.AdmissionRequest{
			"of others":            of(given, "kubernetes-admin"),
			"of a vkubelet":        of(given, "system:serviceaccount:liqo-tenant-rome:vk-rome"),
			"nothing to leave out": of(metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "a"}}, peer),
			"as it was":            of(old, peer, old),
		} {
			require.Equal(t, serve.Allow(), rule.Decide(t.Context(), req), "%s %s", kind, name)
		}
	}
	require.Equal(t, int32(400), rule.Decide(t.Context(), written(t, peer, "text")).Code)
}

// TestPeersObjectsThatAreBeingDeleted: a peer cannot pass the rules by deleting an object that
// a finalizer keeps.
func TestPeersObjectsThatAreBeingDeleted(t *testing.T) {
	t.Parallel()
	services := PeerServiceRule{Bounds: clusterIPs, Synced: always}
	going := func(kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Spec: corev1.ServiceSpec{Type: kind}}
	}
	answer := services.Decide(t.Context(), rewritten(t, "liqo.io:peer:rome:1", going(corev1.ServiceTypeExternalName), going(corev1.ServiceTypeClusterIP)))
	require.False(t, answer.Allowed)
	require.True(t, services.Decide(t.Context(), rewritten(t, "liqo.io:peer:rome:1", going(corev1.ServiceTypeClusterIP), going(corev1.ServiceTypeClusterIP))).Allowed)
}

// TestPeersAreTrustedApart: what one peer may do, another one may not, at the same time.
func TestPeersAreTrustedApart(t *testing.T) {
	t.Parallel()
	trusts := map[string]bool{"rome": true}
	services := PeerServiceRule{Synced: always, Bounds: func(peer string) rules.ServiceBounds {
		if trusts[peer] {
			return rules.ServiceBounds{Types: []string{"ClusterIP", "ExternalName"}}
		}
		return clusterIPs(peer)
	}}
	metadata := PeerMetadataRule{Synced: always, Metadata: func(peer string) rules.Metadata {
		if trusts[peer] {
			return rules.Metadata{Annotations: rules.Annotations{rules.AllKeys}}
		}
		return rules.Metadata{}
	}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/a": "1"}}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
	for _, rome := range []bool{true, false} {
		trusts["rome"], trusts["oslo"] = rome, !rome
		for peer, trusted := range trusts {
			for _, user := range []string{"liqo.io:peer:" + peer + ":1", "system:serviceaccount:liqo-tenant-" + peer + ":peer-1"} {
				req := written(t, user, service)
				req.Kind.Kind = "Service"
				require.Equal(t, trusted, services.Decide(t.Context(), req).Allowed, user)
				require.Equal(t, trusted, len(metadata.Decide(t.Context(), req).Patch) == 0, user)
			}
		}
	}
}

// TestPeerSessions: a peer execs, attaches and port-forwards only to pods of its own.
func TestPeerSessions(t *testing.T) {
	t.Parallel()
	pod := func(name, managedBy, shadow string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
		if managedBy != "" {
			p.Labels[offloadingv1beta1.ManagedByLabel] = managedBy
		}
		if shadow != "" {
			p.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] = shadow
		}
		return p
	}
	kube := fake.NewClientset(pod("own", offloadingv1beta1.ManagedByShadowPod, "uid"), pod("guest", "", ""), pod("other", "somebody", "uid"), pod("half", offloadingv1beta1.ManagedByShadowPod, ""))
	sessions := PeerSessionRule{Pods: kube.CoreV1()}
	decide := func(user, name string) (serve.Decision, error) {
		return sessions.Decide(t.Context(), &admissionv1.AdmissionRequest{Operation: admissionv1.Connect, Namespace: "shop-rome", Name: name, UserInfo: authenticationv1.UserInfo{Username: user}})
	}
	ask := func(user, name string) serve.Decision {
		answer, err := decide(user, name)
		require.NoError(t, err)
		return answer
	}
	for _, user := range []string{"liqo.io:peer:rome:1", "system:serviceaccount:liqo-tenant-rome:peer-1"} {
		require.Equal(t, serve.Allow(), ask(user, "own"), user)
		for _, name := range []string{"guest", "other", "half"} {
			answer := ask(user, name)
			require.False(t, answer.Allowed, name)
			require.Contains(t, answer.Message, "pod shop-rome/"+name+" was not made for a ShadowPod")
			require.Zero(t, answer.Code, "forbidden")
		}
		require.Equal(t, int32(404), ask(user, "gone").Code)
	}
	kube.ClearActions()
	for _, user := range []string{"kubernetes-admin", "system:serviceaccount:liqo-tenant-rome:vk-rome"} {
		require.Equal(t, serve.Allow(), ask(user, "guest"), user)
	}
	require.Empty(t, kube.Actions(), "sessions of others cost nothing")
	kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	_, err := decide("liqo.io:peer:rome:1", "own")
	require.ErrorContains(t, err, "down")
}

func rewritten(t *testing.T, user string, obj, old any) *admissionv1.AdmissionRequest {
	t.Helper()
	req := written(t, user, obj)
	req.Operation = admissionv1.Update
	var err error
	req.OldObject.Raw, err = json.Marshal(old)
	require.NoError(t, err)
	return req
}

const controllerAccount = "system:serviceaccount:liqod:liqod-controller"

// TestBindingsOfTheController: a vkubelet gets rights only where people have offloaded the namespace.
func TestBindingsOfTheController(t *testing.T) {
	t.Parallel()
	liqo := liqofake.NewSimpleClientset(&offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}},
		&offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "other"}})
	rule := ControllerRule{Kube: fake.NewClientset(), Liqo: liqo}
	in := func(namespace string) (bool, error) {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqod-vkubelet-namespace:x"}}
		req := written(t, controllerAccount, binding)
		req.Namespace = namespace
		answer, err := rule.DecideBinding(t.Context(), req)
		require.Zero(t, answer.Code)
		return answer.Allowed, err
	}
	for namespace, want := range map[string]bool{"shop": true, "bank": false, "kube-system": false} {
		allowed, err := in(namespace)
		require.NoError(t, err)
		require.Equal(t, want, allowed, namespace)
	}
	liqo.PrependReactor("get", "namespaceoffloadings", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	allowed, err := in("shop")
	require.ErrorContains(t, err, "down", "unknown is not offloaded")
	require.False(t, allowed)
}

// TestVolumesOfTheController: a claim gets only the data of the volume that a provisioner has made for it.
func TestVolumesOfTheController(t *testing.T) {
	t.Parallel()
	disk := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: handle}}
	}
	claim := func(uid, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-storage", Name: uid, UID: "real-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	made := func(name, handle, provisioner, of string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: disk(handle), ClaimRef: &corev1.ObjectReference{UID: "real-uid", Name: of}}}
	}
	loose := made("pvc-loose", "4", "disks.example", "")
	loose.Spec.ClaimRef = nil
	others := made("pvc-others", "5", "disks.example", "")
	others.Spec.ClaimRef.UID = "another"
	class := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	}
	kube := fake.NewClientset(class("liqo", "liqo.io/storage"), class("of-people", "liqo.io/storage"), class("disk", "disks.example"),
		claim("1", "pvc-made"), claim("2", ""), claim("3", "pvc-own"), claim("4", "pvc-loose"), claim("5", "pvc-others"), claim("6", "pvc-gone"),
		made("pvc-made", "1", "disks.example", "1"), made("pvc-own", "3", "liqo.io/storage", "3"), loose, others)
	rule := ControllerRule{Kube: kube, Liqo: liqofake.NewSimpleClientset(), StorageNamespace: "liqo-storage"}
	ask := func(class, uid, handle string) (bool, error) {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + uid, Labels: map[string]string{"offloading.liqo.io/local-claim-uid": uid}},
			Spec: corev1.PersistentVolumeSpec{StorageClassName: class, PersistentVolumeSource: disk(handle)}}
		answer, err := rule.DecideVolume(t.Context(), written(t, controllerAccount, volume))
		require.Zero(t, answer.Code)
		return answer.Allowed, err
	}
	for what, tc := range map[string]struct {
		class, uid, handle string
		want               bool
	}{
		"the volume made for it":             {"liqo", "1", "1", true},
		"of a class of people":               {"of-people", "1", "1", true},
		"a class of another provisioner":     {"disk", "1", "1", false},
		"a class that does not exist":        {"gone", "1", "1", false},
		"no class":                           {"", "1", "1", false},
		"another's disk":                     {"liqo", "1", "9", false},
		"a claim that is not bound":          {"liqo", "2", "2", false},
		"a volume that liqod made itself":    {"liqo", "3", "3", false},
		"a volume of no claim":               {"liqo", "4", "4", false},
		"a volume of a claim with that name": {"liqo", "5", "5", false},
		"a claim whose volume is gone":       {"liqo", "6", "6", false},
		"a claim that does not exist":        {"liqo", "7", "7", false},
		"no label":                           {"liqo", "", "1", false},
	} {
		allowed, err := ask(tc.class, tc.uid, tc.handle)
		require.NoError(t, err, what)
		require.Equal(t, tc.want, allowed, what)
	}
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims", "storageclasses"} {
		kube.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
		allowed, err := ask("liqo", "1", "1")
		require.ErrorContains(t, err, "down", resource)
		require.False(t, allowed, resource)
	}
}

// TestTheLaterIngressIsMarked: of two Ingresses with one host that both got past the webhook, the
// later one has an event, if it is a peer's.
func TestTheLaterIngressIsMarked(t *testing.T) {
	type made struct {
		name, peer string
		ago        time.Duration
	}
	for name, tc := range map[string]struct {
		both   [2]made
		marked string // by its host
	}{
		"two peers":                      {[2]made{{"b", "rome", 2 * time.Second}, {"a", "paris", time.Second}}, "*.example.com"},
		"two peers in one second":        {[2]made{{"b", "rome", 0}, {"a", "paris", 0}}, "b.example.com"},
		"a peer after one's own":         {[2]made{{"b", "", 2 * time.Second}, {"a", "paris", time.Second}}, "*.example.com"},
		"a peer with one's own":          {[2]made{{"a", "paris", 0}, {"b", "", 0}}, "*.example.com"},
		"one's own after that of a peer": {[2]made{{"a", "paris", 2 * time.Second}, {"b", "", time.Second}}, ""},
		"one peer":                       {[2]made{{"a", "rome", 2 * time.Second}, {"b", "rome", time.Second}}, ""},
		"long ago":                       {[2]made{{"b", "rome", 3 * time.Hour}, {"a", "paris", 2 * time.Hour}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				var objects []runtime.Object
				for _, m := range tc.both {
					ing := &networkingv1.Ingress{
						ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: m.name, UID: types.UID(m.name), CreationTimestamp: metav1.NewTime(time.Now().Add(-m.ago))},
						Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: map[string]string{"a": "*.example.com", "b": "b.example.com"}[m.name]}}},
					}
					if m.peer != "" {
						ing.Labels = map[string]string{offloadingv1beta1.OriginLabel: m.peer}
					}
					objects = append(objects, ing)
				}
				core, recorder := fake.NewClientset(objects...), record.NewFakeRecorder(10)
				kubetest.WatchFromList(core)
				factory := informers.NewSharedInformerFactory(core, 0)
				hosts := NewHosts(HostsConfig{Ingresses: factory.Networking().V1().Ingresses(), Recorder: recorder, Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)}})
				factory.Start(t.Context().Done())
				go func() { _ = hosts.Run(t.Context(), 1) }()
				kubetest.Settled(time.Second)
				if tc.marked == "" {
					require.Empty(t, recorder.Events)
					return
				}
				require.Len(t, recorder.Events, 1)
				require.Contains(t, <-recorder.Events, "Warning HostTaken host "+tc.marked+" is used by another Ingress of this cluster")
			})
		})
	}
}
