package report

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/shadow/rules"
)

// TestPodsThatWaitForClaims follows a waiting pod to its claim, and the claim to its class, node and
// provider. Each fix names the object to act on.
func TestPodsThatWaitForClaims(t *testing.T) {
	usual := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "rancher.io/local-path", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	at := func(name, node string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c", Annotations: map[string]string{}}}
		if name != "" {
			c.Spec.StorageClassName = &name
		}
		if node != "" {
			c.Annotations[SelectedNode] = node
		}
		c.Status.Phase = corev1.ClaimPending
		return c
	}
	in := func(phase corev1.PersistentVolumeClaimPhase, volume string) *corev1.PersistentVolumeClaim {
		c := at("local-path", "")
		c.Status.Phase, c.Spec.VolumeName = phase, volume
		return c
	}
	for name, tc := range map[string]struct {
		claim    *corev1.PersistentVolumeClaim
		binding  bool   // the scheduler waits for the volume, and has said nothing yet
		node     string // of the pod; there it is unschedulable
		kept     bool   // the pod admits no virtual node
		selects  bool   // the pod selects virtual nodes itself
		event    string // about the claim
		says     string // its reason, ProvisioningFailed if empty
		strategy offloadingv1beta1.PodOffloadingStrategy
		lone     bool // there is no class of own nodes
		age      time.Duration
		level    Level
		state    string
		why      string
		fix      string
	}{
		"missing": {level: Problem, state: "ClaimMissing", why: "PersistentVolumeClaim data does not exist", fix: "kubectl -n shop get pvc\n"},
		"of own nodes, on a virtual one": {claim: at("", "milan"), level: Problem, state: "ClaimNeedsOwnNode",
			why: `PersistentVolumeClaim data (class "local-path") has its volume on nodes of this cluster only, and the scheduler has chosen virtual node milan of cluster milan`,
			fix: "kubectl -n shop delete pod one\n"},
		"the same, Remote": {claim: at("local-path", "milan"), strategy: offloadingv1beta1.PodsRemote, level: Problem, state: "ClaimNeedsOwnNode",
			fix: "liqod offload namespace shop --pod-offloading-strategy LocalAndRemote\nkubectl -n shop delete pod one\n"},
		"of own nodes, of a pod that selects virtual ones": {claim: at("", "milan"), selects: true, level: Problem, state: "ClaimNeedsOwnNode",
			fix: "kubectl -n shop get pod one -o yaml >one.yaml && ${EDITOR:-vi} one.yaml && kubectl -n shop replace --force -f one.yaml\nRemove what asks for virtual nodes: the nodeSelector or affinity with the key liqo.io/type, or the runtime class liqo."},
		"the same, and Remote": {claim: at("", "milan"), selects: true, strategy: offloadingv1beta1.PodsRemote, level: Problem, state: "ClaimNeedsOwnNode",
			fix: "\nRemove what asks for virtual nodes: "},
		"bound, its pod in the provider": {claim: in(corev1.ClaimBound, "v"), node: "milan", level: Problem, state: "ClaimNeedsOwnNode", fix: "kubectl -n shop delete pod one\nand create it again from its manifest: no controller does it."},
		"refused by the provider": {claim: at("liqo", "milan"), event: "cluster milan refuses it: exceeded quota: storage", level: Problem, state: "ProvisioningFailed",
			why: `PersistentVolumeClaim data (class "liqo"): cluster milan refuses it: exceeded quota: storage`, fix: "kubectl -n shop describe pvc data\nshows its class and its events. Its volume is made in cluster milan, whose quotas and classes apply:\nliqod status milan"},
		"to be filled from a snapshot": {claim: at("liqo", "milan"), event: "PersistentVolumeClaim data is to be filled from VolumeSnapshot s", says: offloadingv1beta1.ReasonDataSource,
			level: Problem, state: "DataSourceNotSupported", fix: "kubectl -n shop delete pvc data\nand create it without dataSource, "},
		"of no class that exists": {claim: at("gone", ""), level: Problem, state: "StorageClassMissing",
			why: `PersistentVolumeClaim data has the class "gone", which does not exist: it waits for a volume that somebody makes`, fix: "kubectl -n shop delete pvc data\n"},
		"of no class that exists, and told so": {claim: at("gone", ""), event: `storageclass.storage.k8s.io "gone" not found`, level: Problem, state: "StorageClassMissing",
			fix: "kubectl -n shop delete pvc data\n"},
		"of own nodes, which do not take its pod": {claim: at("local-path", ""), kept: true, age: time.Second, level: Warning, state: "ClaimKeepsHome",
			why: `PersistentVolumeClaim data (class "local-path") has its volume on nodes of this cluster only, and none takes the pod: 0/3 nodes`,
			fix: "kubectl -n shop replace --force -f one.yaml\nChange its requests, node selector or affinity, so that a node of this cluster takes it."},
		"of no class": {claim: at("", ""), lone: true, level: Problem, state: "StorageClassMissing",
			why: "PersistentVolumeClaim data names no class, and this cluster has no default one: it waits for a volume that somebody makes", fix: "kubectl get storageclasses"},
		"being made in the provider": {claim: at("liqo", "milan"), binding: true, age: 2 * time.Minute, level: Warning, state: "ClaimPending",
			why: `PersistentVolumeClaim data (class "liqo") waits for its volume in cluster milan`, fix: "kubectl -n shop describe pvc data\n"},
		"being made here":        {claim: at("local-path", "rome-1"), binding: true, age: time.Second, level: OK, state: "ClaimPending", why: `PersistentVolumeClaim data (class "local-path") waits for its volume`},
		"waits for its pod":      {claim: at("local-path", ""), level: Problem, state: "Unschedulable", why: "0/3 nodes"},
		"bound, its pod at home": {claim: in(corev1.ClaimBound, ""), level: Problem, state: "Unschedulable", why: "0/3 nodes"},
		"lost":                   {claim: in(corev1.ClaimLost, "v"), level: Problem, state: "ClaimLost", why: `PersistentVolumeClaim data (class "local-path") has lost its volume v`, fix: "kubectl -n shop describe pvc data\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := waitingForStorage(t, func(*corev1.PersistentVolumeClaim) {})
			p := s.Pods[0]
			p.CreationTimestamp, p.Spec.NodeName = ago(cmp.Or(tc.age, time.Hour)), tc.node
			if tc.binding {
				p.Status.Conditions = nil
			}
			if tc.node != "" {
				p.Status.Conditions[0].Type = corev1.PodReady
			}
			if tc.selects {
				p.Spec.NodeSelector = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
			}
			if tc.strategy == offloadingv1beta1.PodsRemote {
				offloadedAs(&p, tc.strategy, corev1.NodeSelector{})
				p.Spec.NodeName = tc.node
			}
			if tc.kept {
				kept, err := rules.KeepHome(&p)
				require.NoError(t, err)
				p = *kept
			}
			s.Pods = []corev1.Pod{p}
			require.Equal(t, []string{"shop"}, s.Claiming())
			if tc.strategy != "" {
				s.Offloadings[0].Spec.PodOffloadingStrategy = tc.strategy
			}
			if s.Classes = append(s.Classes, usual); tc.lone {
				s.Classes = s.Classes[:1]
			}
			if s.Claims[0] = *cmp.Or(tc.claim, &corev1.PersistentVolumeClaim{}); tc.claim == nil {
				s.Claims = s.Claims[:0]
			}
			if tc.event != "" {
				s.Events = []corev1.Event{{Type: corev1.EventTypeWarning, Reason: cmp.Or(tc.says, "ProvisioningFailed"), Message: tc.event, LastTimestamp: ago(time.Minute),
					InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: "c"}}}
			}
			require.Equal(t, tc.level, s.PodsOf("shop")[0].Level)
			judgement{tc.state, tc.why, tc.fix}.of(t, s)
		})
	}
}

// TestPodsThatWaitForTheirData: a pod without a node says which cluster has its data, and what keeps the
// pod from it.
func TestPodsThatWaitForTheirData(t *testing.T) {
	const there = `PersistentVolumeClaim data (class "liqo") has its data in cluster milan, `
	for name, tc := range map[string]struct {
		change func(s *Snapshot)
		want   judgement
	}{
		"which takes pods": {change: func(*Snapshot) {}, want: judgement{state: "Unschedulable", why: "0/3 nodes"}},
		"cordoned": {change: func(s *Snapshot) { s.node("milan").Spec.Unschedulable = true },
			want: judgement{"DataElsewhere", there + "whose virtual node milan is cordoned: the pod waits for it", "kubectl uncordon milan\n"}},
		"not Ready": {change: func(s *Snapshot) { nodeCondition(s.node("milan"), corev1.NodeReady).Status = corev1.ConditionFalse },
			want: judgement{"DataElsewhere", there + "whose virtual node milan is not Ready: the pod waits for it", "liqod status milan\n"}},
		"being removed": {change: func(s *Snapshot) { s.VirtualNodes[0].DeletionTimestamp = new(ago(time.Minute)) },
			want: judgement{"DataElsewhere", there + "whose virtual node milan is being removed: the pod waits for it", "liqod status milan\n"}},
		"no peer any more": {change: func(s *Snapshot) { s.VirtualNodes, s.Nodes = nil, nil },
			want: judgement{"DataElsewhere", there + "which has no virtual node here any more: the pod waits for it", "liqod storage list\n"}},
		"no peer any more, and no right to see volumes": {change: func(s *Snapshot) { s.VirtualNodes, s.Nodes, s.Volumes = nil, nil, nil }, want: judgement{state: "Unschedulable"}},
		"cordoned, and no right to see volumes": {change: func(s *Snapshot) { s.node("milan").Spec.Unschedulable, s.Volumes = true, nil },
			want: judgement{state: "DataElsewhere", why: there + "whose virtual node milan is cordoned: the pod waits for it"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := waitingForStorage(t, func(c *corev1.PersistentVolumeClaim) {
				c.Annotations, c.Spec.VolumeName, c.Status.Phase = map[string]string{SelectedNode: "milan"}, "pvc-c", corev1.ClaimBound
			})
			s.Volumes = []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "pvc-c", Labels: map[string]string{"liqo.io/remote-cluster-id": "milan"}}}}
			tc.change(s)
			tc.want.of(t, s)
		})
	}
}

// TestNewPodsThatWaitForTheirData: it is a warning at once that the provider with the data is away.
func TestNewPodsThatWaitForTheirData(t *testing.T) {
	s := waitingForStorage(t, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations, c.Spec.VolumeName, c.Status.Phase = map[string]string{SelectedNode: "milan"}, "pvc-c", corev1.ClaimBound
	})
	s.node("milan").Spec.Unschedulable = true
	for age, level := range map[time.Duration]Level{time.Second: Warning, 2 * time.Minute: Warning, time.Hour: Problem} {
		s.Pods[0].CreationTimestamp = ago(age)
		require.Equal(t, level, s.PodsOf("shop")[0].Level, age)
	}
}

// waitingForStorage has one pod, without a node, with a claim of class liqo.
func waitingForStorage(t *testing.T, change func(*corev1.PersistentVolumeClaim)) *Snapshot {
	s := healthy(t)
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c"}}
	claim.Spec.StorageClassName, claim.Status.Phase = new("liqo"), corev1.ClaimPending
	change(&claim)
	s.Classes = []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}}
	s.Claims = []corev1.PersistentVolumeClaim{claim}
	p := corev1.Pod{}
	p.Namespace, p.Name, p.CreationTimestamp = "shop", "one", ago(time.Hour)
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	unplaced("0/3 nodes")(&p.Status)
	s.Pods = []corev1.Pod{p}
	return s
}

// TestPodsThatFindNoStorage: a pod that admits virtual nodes only, none of which makes volumes, says
// which setting that is.
func TestPodsThatFindNoStorage(t *testing.T) {
	const none = `PersistentVolumeClaim data (class "liqo") gets no volume on the virtual nodes that the pod admits: `
	for name, tc := range map[string]struct {
		change func(s *Snapshot)
		want   judgement
	}{
		"of an offer": {change: func(s *Snapshot) { s.VirtualNodes[0].Labels = map[string]string{"liqo.io/managed-by": "resourceoffer"} },
			want: judgement{"NoStorage", none + "cluster milan offers no storage class (its sharing.storageClasses)", "In cluster milan:\nkubectl get storageclasses\n"}},
		"made by hand": {change: func(s *Snapshot) { s.VirtualNodes[0].Labels = nil },
			want: judgement{"NoStorage", none + "VirtualNode milan lists none (spec.storageClasses)", "kubectl -n liqo-tenant-milan edit virtualnodes.offloading.liqo.io milan\n"}},
		"no reflection of claims": {change: func(s *Snapshot) {
			s.VirtualNodes[0].Spec.StorageClasses = []offloadingv1beta1.ClassOffer{{StorageClassName: "fast"}}
		}, want: judgement{"NoStorage", none + "virtual node milan makes no volumes (offloading.reflection.persistentvolumeclaim.workers is 0)", "set offloading.reflection.persistentvolumeclaim.workers"}},
		"offered": {change: func(s *Snapshot) { delete(s.node("milan").Labels, offloadingv1beta1.NoStorageLabel) },
			want: judgement{state: "Unschedulable", why: "0/3 nodes"}},
		"own nodes too": {change: func(s *Snapshot) { s.Pods[0].Spec.Affinity = nil }, want: judgement{state: "Unschedulable", why: "0/3 nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := waitingForStorage(t, func(*corev1.PersistentVolumeClaim) {})
			node := s.node("milan")
			node.Labels = map[string]string{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan", offloadingv1beta1.NoStorageLabel: "true"}
			s.Pods[0].Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpIn, Values: []string{"virtual-node"}},
					{Key: offloadingv1beta1.NoStorageLabel, Operator: corev1.NodeSelectorOpDoesNotExist},
				}}}}}}
			tc.change(s)
			tc.want.of(t, s)
		})
	}
}

// judgement is what status says about the only pod.
type judgement struct{ state, why, fix string }

func (j judgement) of(t *testing.T, s *Snapshot) {
	t.Helper()
	got := s.PodsOf("shop")[0]
	require.Equal(t, j.state, got.State)
	require.Contains(t, got.Why, j.why)
	c := &checker{Snapshot: s}
	require.Contains(t, c.podFix(c.workloads()[0]), j.fix)
}

// TestClaimsThatAreNotRead: without the claims the scheduler's words stand.
func TestClaimsThatAreNotRead(t *testing.T) {
	s := healthy(t)
	p := broken(s, "db-0", "", unplaced("0/3 nodes"))
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	pods := s.PodsOf("shop")
	require.Equal(t, "Unschedulable", pods[len(pods)-1].State)
}
