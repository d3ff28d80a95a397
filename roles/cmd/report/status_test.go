package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

func TestStatusOfAHealthyCluster(t *testing.T) {
	status := Summarize(healthy(t))
	require.Equal(t, OK, status.Health)
	require.Equal(t, `Cluster rome: healthy

liqod 0.1.0 in namespace liqod, Kubernetes v1.36.3; controller 2/2; webhook 2/2; ipam 2/2; gateway 2/2; route 3/3

PEER    ROLE                  HEALTH    NODES   PODS READY   CPU            MEMORY        HOSTED PODS
milan   ConsumerAndProvider   Healthy   1/1     2/2          0.75/4 (19%)   2/8Gi (25%)   1

OFFLOADED NAMESPACE   STRATEGY         PHASE   IN
shop                  LocalAndRemote   Ready   milan: 2 pods
`, status.Text(false))
}

// TestTrustApart: the trust in a peer is shown where it is not that of the setting.
func TestTrustApart(t *testing.T) {
	for name, tc := range map[string]struct {
		setting, peer corev1beta1.Trust
		shown         bool
	}{
		"nobody says":        {setting: corev1beta1.TrustOrganisation},
		"as the setting":     {setting: corev1beta1.TrustStrict, peer: corev1beta1.TrustStrict},
		"wider":              {setting: corev1beta1.TrustStrict, peer: corev1beta1.TrustOrganisation, shown: true},
		"narrower":           {setting: corev1beta1.TrustOrganisation, peer: corev1beta1.TrustStrict, shown: true},
		"of unknown setting": {peer: corev1beta1.TrustStrict, shown: true},
	} {
		s := healthy(t)
		s.Trust, s.ForeignClusters[0].Spec.Trust = tc.setting, tc.peer
		status := Summarize(s)
		require.Equal(t, OK, status.Health, name)
		text := "\nTrust in milan: " + string(tc.peer) + " (spec.trust of its ForeignCluster).\n"
		if tc.shown {
			require.Equal(t, tc.peer, status.Peers[0].Trust, name)
			require.Contains(t, status.Text(false), text, name)
			require.Contains(t, status.DetailText(false), "  Trust:         "+string(tc.peer)+"\n", name)
			require.Contains(t, CheckText(Check(s)), "✔ trust: "+string(tc.peer)+", by spec.trust of ForeignCluster milan", name)
			continue
		}
		require.Empty(t, status.Peers[0].Trust, name)
		require.NotContains(t, status.DetailText(false)+CheckText(Check(s)), "rust", name)
	}
}

// TestRefusedPackets: the numbers of all hosts are added up for each peer.
func TestRefusedPackets(t *testing.T) {
	s := healthy(t)
	require.NotContains(t, Summarize(s).Text(false), "Refused")
	event := func(peer, reason string, n int32) corev1.Event {
		return corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + peer}, Reason: reason, Count: n}
	}
	s.Refusals = []corev1.Event{
		event("milan", networkingv1beta1.ReasonPacketsRefused, 1000), event("milan", networkingv1beta1.ReasonPacketsRefused, 24),
		event("milan", "Other", 5), event("turin", networkingv1beta1.ReasonPacketsRefused, 7),
	}
	status := Summarize(s)
	require.Equal(t, OK, status.Health)
	require.Equal(t, Refused{Packets: 1024, Hosts: 2}, status.Peers[0].Refused)
	require.Contains(t, status.Text(false), "\nRefused by the network of this cluster from milan: at least 1024 packets, on 2 hosts.\n")
	require.Contains(t, status.DetailText(false), "  Refused:       at least 1024 packets, on 2 hosts\n")
}

func TestStatusOfOnePeer(t *testing.T) {
	s := healthy(t)
	turin := s.ForeignClusters[0].DeepCopy()
	turin.Name, turin.Spec.ClusterID, turin.Status.Role = "turin", "turin", corev1beta1.RoleProvider
	s.ForeignClusters = append(s.ForeignClusters, *turin)
	all := Summarize(s)
	require.Equal(t, Problem, all.Health, "turin has no tenant namespace")

	one, err := all.Of("milan")
	require.NoError(t, err)
	require.Equal(t, OK, one.Health)
	require.Len(t, one.Peers, 1)
	require.Contains(t, one.DetailText(false), `
Peer milan
  Role:          ConsumerAndProvider
  Health:        Healthy
  Says:          all checks pass
  API server:    https://milan:6443
  Runs here:     1 pod in 1 namespace
  Limit:         no Quota bounds it
  Virtual node:  milan: Ready; pods 2/110 (2%), cpu 0.75/4 (19%), memory 2/8Gi (25%)
  Namespace:     shop as shop-rome: 2 pods; namespace shop-rome stands in cluster milan
`)
	other, err := all.Of("turin")
	require.NoError(t, err)
	require.Equal(t, Problem, other.Health)
	require.Empty(t, other.Namespaces)
	_, err = all.Of("genoa")
	require.EqualError(t, err, `there is no peer "genoa": the peers are milan, turin`)
	_, err = (&Status{}).Of("genoa")
	require.EqualError(t, err, `there is no peer "genoa": this cluster has no peers`)
}

func TestStatusWithoutPeers(t *testing.T) {
	s := healthy(t)
	s.ForeignClusters, s.VirtualNodes, s.Nodes, s.Offloadings, s.Maps, s.Tenants, s.ClusterID = nil, nil, nil, nil, nil, nil, ""
	require.Equal(t, `Cluster (cluster id unknown): healthy

liqod 0.1.0 in namespace liqod, Kubernetes v1.36.3; controller 2/2; webhook 2/2; ipam 2/2; gateway 2/2; route 3/3

No peers.
`, Summarize(s).Text(false))
}

// Scripts read these names.
func TestStatusAsJSON(t *testing.T) {
	data, err := json.Marshal(Summarize(healthy(t)))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"cluster": "rome", "version": "0.1.0", "namespace": "liqod", "kubernetes": "v1.36.3", "health": "ok", "problems": [],
		"roles": [
			{"name": "controller", "object": "liqod/liqod-controller", "level": "ok", "message": "2 of 2 replicas are ready; controller-0 leads", "ready": 2, "want": 2, "leader": "controller-0", "version": "0.1.0", "image": "liqod:1", "restarts": 0},
			{"name": "webhook", "object": "liqod/liqod-webhook", "level": "ok", "message": "2 of 2 replicas are ready; webhook-0 leads", "ready": 2, "want": 2, "leader": "webhook-0", "version": "0.1.0", "image": "liqod:1", "restarts": 0},
			{"name": "ipam", "object": "liqod/liqod-ipam", "level": "ok", "message": "2 of 2 replicas are ready", "ready": 2, "want": 2, "version": "0.1.0", "image": "liqod:1", "restarts": 0},
			{"name": "gateway", "object": "liqod/liqod-gateway", "level": "ok", "message": "2 of 2 replicas are ready", "ready": 2, "want": 2, "version": "0.1.0", "image": "liqod:1", "restarts": 0},
			{"name": "route", "object": "liqod/liqod-route", "level": "ok", "message": "3 of 3 replicas are ready", "ready": 3, "want": 3, "version": "0.1.0", "image": "liqod:1", "restarts": 0},
			{"name": "vkubelet", "object": "liqo-tenant-milan/vk-milan", "level": "ok", "message": "2 of 2 replicas are ready", "ready": 2, "want": 2, "version": "0.1.0", "image": "liqod:1", "restarts": 0}],
		"peers": [{
			"clusterID": "milan", "role": "ConsumerAndProvider", "health": "ok", "message": "all checks pass", "apiServer": "https://milan:6443",
			"conditions": [{"type": "APIServerStatus", "status": "True", "lastTransitionTime": "2030-05-04T11:59:48Z", "reason": "APIServerReady", "message": "the API server answers"}],
			"virtualNodes": [{"name": "milan", "health": "ok", "message": "Ready", "pods": 2, "ready": 2,
				"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "used": {"cpu": "750m", "memory": "2Gi", "pods": "2"}}],
			"hosted": {"namespaces": 1, "pods": 1}, "given": {"capacity": null, "used": {"cpu": "1", "memory": "1Gi", "pods": "1"}}, "limit": "no Quota bounds it"
		}],
		"namespaces": [{"name": "shop", "strategy": "LocalAndRemote", "phase": "Ready", "remoteName": "shop-rome", "message": "namespace shop-rome stands in cluster milan",
			"peers": [{"clusterID": "milan", "ready": true, "message": "namespace shop-rome stands in cluster milan", "pods": 2,
				"podCounts": {"pods": 2, "ready": 2, "notReady": 0, "refused": 0, "unschedulable": 0, "waiting": 0}}]}]
	}`, string(data))
}

func TestWhatIsNegotiated(t *testing.T) {
	s := healthy(t)
	s.ForeignClusters[0].Status.Version = "0.2.0"
	tells(s, corev1beta1.ConditionAuthenticated, metav1.ConditionTrue, "Authenticated", "by certificate")
	offer := func(name, provider string, approved bool, phase sharingv1alpha1.OfferPhase, message string) sharingv1alpha1.ResourceOffer {
		return sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name},
			Spec:   sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: provider, Approved: approved, ResourceQuota: corev1.ResourceQuotaSpec{Hard: resources("4", "8Gi", "110")}},
			Status: sharingv1alpha1.ResourceOfferStatus{Phase: phase, Message: message}}
	}
	s.Offers = []sharingv1alpha1.ResourceOffer{offer("milan", "milan", true, sharingv1alpha1.OfferAccepted, ""), offer("rome", "rome", false, "", "waits for approval")}
	status, err := Summarize(s).Of("milan")
	require.NoError(t, err)
	text := status.DetailText(false)
	for _, line := range []string{
		"  Version:        0.2.0\n", "  Authenticated:  True (Authenticated): by certificate\n",
		"  Offer:          milan, to this cluster: Accepted; cpu 4, memory 8Gi\n",
		"  Offer:          rome, by this cluster: not approved; cpu 4, memory 8Gi; waits for approval\n",
	} {
		require.Contains(t, text, line)
	}
}

// TestGiven: what a consumer gets is the sum of its Quotas, and what its pods here ask for.
func TestGiven(t *testing.T) {
	quota := func(cordoned bool, cpu string) offloadingv1beta1.Quota {
		return offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("paris")},
			Spec: offloadingv1beta1.QuotaSpec{Cordoned: &cordoned, Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	for name, tc := range map[string]struct {
		quotas []offloadingv1beta1.Quota
		unread error
		cpu    string
		limit  string
	}{
		"none":     {limit: "no Quota bounds it"},
		"unread":   {unread: errors.New("forbidden"), limit: "Quotas cannot be read: its limit is unknown"},
		"two":      {quotas: []offloadingv1beta1.Quota{quota(false, "2"), quota(false, "1")}, cpu: "3", limit: "bounded by 2 Quotas"},
		"cordoned": {quotas: []offloadingv1beta1.Quota{quota(true, "2")}, cpu: "0", limit: "its Quotas are cordoned: nothing new begins"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{Quotas: tc.quotas, Unread: map[string]error{}, ForeignClusters: []corev1beta1.ForeignCluster{{
				ObjectMeta: metav1.ObjectMeta{Name: "paris"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "paris"}}}}
			if tc.unread != nil {
				s.Unread[ReadQuotas] = tc.unread
			}
			for _, origin := range []string{"paris", "paris", "milan"} {
				s.Pods = append(s.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginLabel: origin, offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}},
					Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}}}}})
			}
			status, err := Summarize(s).Of("paris")
			require.NoError(t, err)
			given := status.Peers[0].Given
			require.Equal(t, "1 2", fmt.Sprint(Amount(corev1.ResourceCPU, *given.Used.Cpu()), " ", given.Used.Pods()))
			require.Equal(t, tc.limit, status.Peers[0].Limit)
			if tc.cpu == "" {
				require.Nil(t, given.Capacity)
			} else {
				require.Equal(t, tc.cpu, given.Capacity.Cpu().String())
			}
			require.Contains(t, status.DetailText(false), tc.limit)
		})
	}
}
