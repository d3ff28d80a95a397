package namespace

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/serve"
)

// TestPodRuleOnProviderLoss: the annotation of the namespace decides, also where only the
// API server has it yet.
func TestPodRuleOnProviderLoss(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value    string
		strategy offloadingv1beta1.PodOffloadingStrategy
		uncached bool
		given    bool
		denied   string
	}{
		"nothing said":         {strategy: offloadingv1beta1.PodsRemote},
		"Evict":                {value: "Evict", strategy: offloadingv1beta1.PodsRemote},
		"Keep":                 {value: "Keep", strategy: offloadingv1beta1.PodsRemote, given: true},
		"Keep, not cached yet": {value: "Keep", strategy: offloadingv1beta1.PodsRemote, uncached: true, given: true},
		"Keep, here or there":  {value: "Keep", strategy: offloadingv1beta1.PodsLocalAndRemote},
		"Keep, here only":      {value: "Keep", strategy: offloadingv1beta1.PodsLocal},
		"unknown": {value: "keep", strategy: offloadingv1beta1.PodsRemote,
			denied: `namespace web: annotation offloading.liqo.io/on-provider-loss is "keep": Keep and Evict are accepted`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, kube := claimRule(t, tc.strategy)
			ns := kubetest.Get(t, kube.CoreV1().Namespaces(), "web")
			if tc.value != "" {
				ns.Annotations = map[string]string{offloadingv1beta1.OnProviderLossAnnotation: tc.value}
			}
			kubetest.Update(t, kube.CoreV1().Namespaces(), ns)
			r.Namespaces = corelisters.NewNamespaceLister(indexOf(t, ns))
			if tc.uncached {
				r.Namespaces = corelisters.NewNamespaceLister(indexOf(t))
			}
			answer := created(t, r, corev1.Pod{})
			require.Equal(t, tc.denied, answer.Message)
			require.Equal(t, tc.denied == "", answer.Allowed)
			text, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			for _, part := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, "on-provider-loss"} {
				require.Equal(t, tc.given, strings.Contains(string(text), part), "%s", text)
			}
		})
	}
}

// TestPodRuleAtUpdate: a client that writes its own list of tolerations takes none away that
// liqod has added. The rule reads nothing but the two pods.
func TestPodRuleAtUpdate(t *testing.T) {
	t.Parallel()
	ours := corev1.Toleration{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}
	own, other := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "more", Value: "x"}
	narrow := corev1.Toleration{Key: ours.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	add := func(path string, value any) []serve.Operation {
		raw, err := json.Marshal(value)
		require.NoError(t, err)
		return []serve.Operation{{Op: "add", Path: path, Value: json.RawMessage(raw)}}
	}
	type list = []corev1.Toleration
	for name, tc := range map[string]struct {
		old, written list
		change       func(*admissionv1.AdmissionRequest)
		patch        []serve.Operation
	}{
		"its own list":                  {old: list{own, ours}, written: list{own, other}, patch: add("/spec/tolerations/-", ours)},
		"no list":                       {old: list{ours}, patch: add("/spec/tolerations", list{ours})},
		"a narrower one":                {old: list{ours}, written: list{narrow}, patch: add("/spec/tolerations/-", ours)},
		"nothing taken away":            {old: list{ours}, written: list{other, ours}},
		"never given":                   {old: list{own}, written: list{own, other}},
		"never given, but one like it":  {old: list{narrow}, written: list{own}},
		"given by the client itself":    {written: list{own}},
		"its status":                    {old: list{ours}, change: func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }},
		"its deletion":                  {old: list{ours}, change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }},
		"in the namespace of this role": {old: list{ours}, change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "liqod" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := func(tolerations list) runtime.RawExtension {
				raw, err := json.Marshal(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "milan", Tolerations: tolerations}})
				require.NoError(t, err)
				return runtime.RawExtension{Raw: raw}
			}
			req := &admissionv1.AdmissionRequest{Namespace: "web", Operation: admissionv1.Update, OldObject: pod(tc.old), Object: pod(tc.written)}
			if tc.change != nil {
				tc.change(req)
			}
			answer := PodRule{OwnNamespace: "liqod"}.Decide(t.Context(), req)
			require.True(t, answer.Allowed, answer.Message)
			want, err := json.Marshal(tc.patch)
			require.NoError(t, err)
			have, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			require.Equal(t, string(want), string(have))
		})
	}
	for _, req := range []admissionv1.AdmissionRequest{{OldObject: runtime.RawExtension{Raw: []byte("{}")}}, {Object: runtime.RawExtension{Raw: []byte("{}")}}} {
		req.Namespace, req.Operation, req.Kind.Kind = "web", admissionv1.Update, "Pod"
		answer := PodRule{}.Decide(t.Context(), &req)
		require.False(t, answer.Allowed)
		require.Contains(t, answer.Message, "reading the Pod")
	}
}

// claimRule is a PodRule for namespace web. The cluster has a default class, the virtual class, and
// claims of both.
func claimRule(t *testing.T, strategy offloadingv1beta1.PodOffloadingStrategy) (PodRule, *fake.Clientset) {
	t.Helper()
	claim := func(name, class, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: volume}}
	}
	ns, moving := plainNamespace("web"), claim("moving", "liqo", "")
	moving.UID, moving.Annotations = "uid-of-moving", map[string]string{offloadingv1beta1.MoveToAnnotation: "milan"}
	kube := fake.NewClientset(ns, claim("own", "local-path", ""), claim("lent", "liqo", ""), claim("filled", "liqo", "pvc-"), claim("manual", "manual", "v"), claim("lost", "manual", "gone"), moving,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	return PodRule{
		Offloadings: offloadinglisters.NewNamespaceOffloadingLister(indexOf(t, &offloadingv1beta1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: offloadingv1beta1.NamespaceOffloadingName},
			Spec:       offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy},
		})),
		Namespaces: corelisters.NewNamespaceLister(indexOf(t, ns)),
		Classes: storagelisters.NewStorageClassLister(indexOf(t,
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "rancher.io/local-path"},
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: offloadingv1beta1.StorageProvisioner},
		)),
		ClassesSynced: func() bool { return true },
		Liqo:          liqodfake.NewSimpleClientset(), Kube: kube, OwnNamespace: "liqod",
	}, kube
}

func indexOf(t *testing.T, objects ...any) cache.Indexer {
	t.Helper()
	i := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, o := range objects {
		require.NoError(t, i.Add(o))
	}
	return i
}

func mounts(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func ephemeral(class *string) corev1.Volume {
	return corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class}}}}}
}

func created(t *testing.T, r PodRule, pod corev1.Pod) serve.Decision {
	t.Helper()
	req := written(t, "", &pod)
	req.Namespace = "web"
	return r.Decide(t.Context(), req)
}

// TestPodsRunWhereTheirClaimsAre: the nodes of a pod under LocalAndRemote follow from its claims.
func TestPodsRunWhereTheirClaimsAre(t *testing.T) {
	t.Parallel()
	const own, virtual, either = `"operator":"NotIn"`, `"operator":"In"`, "either"
	class := "liqo"
	for name, tc := range map[string]struct {
		strategy offloadingv1beta1.PodOffloadingStrategy
		class    string
		selects  map[string]string
		volumes  []corev1.Volume
		want     string // of the node affinity; empty: nothing is changed
		storage  bool   // not on virtual nodes on which no volume is made
		reads    int
	}{
		"no volumes":                      {want: either},
		"of own nodes":                    {volumes: []corev1.Volume{mounts("own")}, want: own, reads: 1},
		"of the virtual class":            {volumes: []corev1.Volume{mounts("lent")}, want: either, storage: true, reads: 1},
		"of both":                         {volumes: []corev1.Volume{mounts("lent"), mounts("own")}, want: own, reads: 2},
		"of the virtual class, bound":     {volumes: []corev1.Volume{mounts("filled")}, want: either, reads: 1},
		"of a volume that people made":    {volumes: []corev1.Volume{mounts("manual")}, want: own, reads: 2},
		"of a volume that is gone":        {volumes: []corev1.Volume{mounts("lost")}, want: either, reads: 2},
		"not there yet":                   {volumes: []corev1.Volume{mounts("later")}, want: either, storage: true, reads: 1},
		"Local, not there yet":            {strategy: offloadingv1beta1.PodsLocal, volumes: []corev1.Volume{mounts("later")}, reads: 1},
		"ephemeral":                       {volumes: []corev1.Volume{ephemeral(nil)}, want: own},
		"ephemeral, of the virtual class": {volumes: []corev1.Volume{ephemeral(&class)}, want: either, storage: true},
		"Remote":                          {strategy: offloadingv1beta1.PodsRemote, volumes: []corev1.Volume{mounts("own")}, want: virtual, reads: 1},
		"Remote, of the virtual class":    {strategy: offloadingv1beta1.PodsRemote, volumes: []corev1.Volume{mounts("lent")}, want: virtual, storage: true, reads: 1},
		"Remote, of both":                 {strategy: offloadingv1beta1.PodsRemote, volumes: []corev1.Volume{mounts("own"), mounts("lent")}, want: virtual, storage: true, reads: 2},
		"its author knows":                {selects: map[string]string{"liqo.io/type": "virtual-node"}, volumes: []corev1.Volume{mounts("own")}, want: either, reads: 1},
		"class liqo":                      {class: offloadingv1beta1.RuntimeClassName, volumes: []corev1.Volume{mounts("own")}, want: virtual, reads: 1},
		"class liqo, of the virtual one":  {strategy: offloadingv1beta1.PodsLocal, class: offloadingv1beta1.RuntimeClassName, volumes: []corev1.Volume{mounts("lent")}, want: virtual, storage: true, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.strategy == "" {
				tc.strategy = offloadingv1beta1.PodsLocalAndRemote
			}
			r, kube := claimRule(t, tc.strategy)
			pod := corev1.Pod{Spec: corev1.PodSpec{Volumes: tc.volumes, NodeSelector: tc.selects}}
			if tc.class != "" {
				pod.Spec.RuntimeClassName = &tc.class
			}
			answer := created(t, r, pod)
			require.True(t, answer.Allowed, answer.Message)
			require.Len(t, kube.Actions(), tc.reads)
			text, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			require.Equal(t, tc.want == own, strings.Contains(string(text), own), "%s", text)
			require.Equal(t, tc.want == virtual, strings.Contains(string(text), virtual), "%s", text)
			require.Equal(t, tc.storage, strings.Contains(string(text), `"key":"offloading.liqo.io/no-storage","operator":"DoesNotExist"`), "%s", text)
			require.Equal(t, tc.want == virtual || tc.want == either, strings.Contains(string(text), offloadingv1beta1.VirtualNodeTaintKey), "%s", text)
		})
	}
}

// TestNoVolumesOnOwnNodes: without a namespace for real claims a pod that needs a volume is not put on an
// own node, where it would wait for ever.
func TestNoVolumesOnOwnNodes(t *testing.T) {
	t.Parallel()
	r, _ := claimRule(t, offloadingv1beta1.PodsLocalAndRemote)
	r.NoOwnVolumes = true
	for claim, restricted := range map[string]bool{"lent": true, "filled": false, "own": false, "later": false} {
		text, err := json.Marshal(created(t, r, corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{mounts(claim)}}}).Patch)
		require.NoError(t, err)
		require.Equal(t, restricted, strings.Contains(string(text), `"key":"liqo.io/type","operator":"In"`), "%s: %s", claim, text)
	}
}

// TestUnknownClaimsAreAskedForAgain: a pod whose claims cannot be read is not placed by chance.
func TestUnknownClaimsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{mounts("manual")}}}
	for name, resource := range map[string]string{"claim": "persistentvolumeclaims", "volume": "persistentvolumes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, kube := claimRule(t, offloadingv1beta1.PodsLocalAndRemote)
			kube.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
			answer := created(t, r, pod)
			require.False(t, answer.Allowed)
			require.EqualValues(t, http.StatusServiceUnavailable, answer.Code)
			require.Contains(t, answer.Message, "PersistentVolumeClaim manual: away")
		})
	}
	t.Run("classes", func(t *testing.T) {
		t.Parallel()
		r, _ := claimRule(t, offloadingv1beta1.PodsLocalAndRemote)
		r.ClassesSynced = func() bool { return false }
		require.EqualValues(t, http.StatusServiceUnavailable, created(t, r, pod).Code)
	})
}

// TestPodsWaitForTheMoveOfTheirClaims: no strategy lets a pod write to a volume that is given up.
func TestPodsWaitForTheMoveOfTheirClaims(t *testing.T) {
	t.Parallel()
	for _, strategy := range []offloadingv1beta1.PodOffloadingStrategy{offloadingv1beta1.PodsLocal, offloadingv1beta1.PodsRemote, offloadingv1beta1.PodsLocalAndRemote} {
		r, _ := claimRule(t, strategy)
		answer := created(t, r, corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{mounts("lent"), mounts("moving")}}})
		require.False(t, answer.Allowed)
		require.Contains(t, answer.Message, "namespace web: PersistentVolumeClaim moving is being moved to node milan")
		require.EqualValues(t, offloadingv1beta1.CauseMoving, answer.Cause)
		// Those of the move are told by the Secret that owns them, and not by their node.
		for name, tc := range map[string]struct {
			change  func(*corev1.Pod)
			allowed bool
		}{
			"of the move":         {func(*corev1.Pod) {}, true},
			"no owner":            {func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
			"another kind":        {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }, false},
			"another Secret":      {func(p *corev1.Pod) { p.OwnerReferences[0].Name = "another" }, false},
			"of another move":     {func(p *corev1.Pod) { p.Labels[offloadingv1beta1.MoveLabel] = "another" }, false},
			"one of another user": {func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, nil }, false},
		} {
			of := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "liqod-move-here", Labels: map[string]string{offloadingv1beta1.MoveLabel: "uid-of-moving"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "liqod-move-here", UID: "key"}}},
				Spec: corev1.PodSpec{NodeName: "worker", Volumes: []corev1.Volume{mounts("moving")}},
			}
			tc.change(&of)
			require.Equal(t, tc.allowed, created(t, r, of).Allowed, name)
		}
	}
}
