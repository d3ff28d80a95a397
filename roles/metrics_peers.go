package roles

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	coreliqoinformers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	sharinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/sharing/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
)

// Directions of namespaces and offers, as values of a label.
const (
	outgoing = "outgoing" // this cluster is the consumer
	incoming = "incoming" // this cluster is the provider
)

// checks are the conditions of a ForeignCluster that have a metric.
var checks = []string{
	corev1beta1.ConditionReady, corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork, corev1beta1.ConditionAuthenticated,
	corev1beta1.ConditionOutgoingPeering, corev1beta1.ConditionIncomingPeering, corev1beta1.ConditionUniqueID,
}

// peerMetrics collects the state of peerings from the caches of role controller, at the time of
// the scrape. Only the active replica has them, so that sums over replicas are right.
type peerMetrics struct {
	described

	clusterID string
	clusters  coreliqoinformers.ForeignClusterInformer
	maps      offloadinginformers.NamespaceMapInformer
	offers    sharinginformers.ResourceOfferInformer
	nodes     coreinformers.NodeInformer
	pods      coreinformers.PodInformer // of peers, in this cluster
	// claims are all claims of this cluster; nil if nothing provisions volumes of the class liqo on its nodes. volumes are those of the class.
	claims  coreinformers.PersistentVolumeClaimInformer
	volumes []cache.SharedIndexInformer
	leading atomic.Bool

	up, unknown, nodeReady, nodeSilent, refuses, peerPods, namespaces, offered, moving, kept *prometheus.Desc
}

// describe sets the descriptions.
func (m *peerMetrics) describe() {
	m.up = describe("liqod_peer_up", "1 if a condition of a peer's ForeignCluster is True, else 0; check is the type of the condition.", "peer", "check")
	m.unknown = describe("liqod_peer_unknown", "1 if the same condition is Unknown, else 0.", "peer", "check")
	m.nodeReady = describe("liqod_virtual_node_ready", "1 if the Node of a virtual node is Ready, else 0.", "peer", "virtual_node")
	m.nodeSilent = describe("liqod_virtual_node_controller_silent", "1 if the controller of a virtual node's provider has missed its heartbeats, else 0.", "peer", "virtual_node")
	m.refuses = describe("liqod_virtual_node_reflection_refused", "1 if the provider of a virtual node refuses objects of this cluster, else 0.", "peer", "virtual_node")
	m.peerPods = describe("liqod_peer_pods", "Pods of a peer in this cluster, by phase.", "peer", "phase")
	m.namespaces = describe("liqod_namespaces",
		"Twin namespaces; direction is outgoing (in the peer) or incoming; phase is Accepted, CreationLoopBackOff, Terminating or Waiting (no answer yet).",
		"peer", "direction", "phase")
	m.offered = describe("liqod_offers",
		"ResourceOffers; direction is outgoing (made by the peer) or incoming (to the peer); phase is Pending, ManualActionRequired, Accepted or Refused.",
		"peer", "direction", "phase")
	m.moving = describe("liqod_volumes_moving", "Claims of the class liqo whose data is being moved: no pod can use them meanwhile.")
	m.kept = describe("liqod_volumes_kept", "PersistentVolumes of the class liqo whose claim is gone and whose data is kept; peer is the cluster that has the data, also this one.", "peer")
	m.described = described{m.up, m.unknown, m.nodeReady, m.nodeSilent, m.refuses, m.peerPods, m.namespaces, m.offered, m.moving, m.kept}
}

// collectVolumes counts the claims whose data is being moved, and the volumes whose claims are gone and whose data is kept.
func (m *peerMetrics) collectVolumes(out gauges, known map[string]bool) {
	if m.claims == nil {
		return
	}
	claims, _ := m.claims.Lister().List(labels.Everything())
	out.send(m.moving, float64(len(slices.DeleteFunc(claims, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[offloadingv1beta1.MoveToAnnotation] == ""
	}))))
	kept := counts{}
	for _, informer := range m.volumes {
		for _, item := range informer.GetStore().List() {
			if v := item.(*corev1.PersistentVolume); v.Annotations[offloadingv1beta1.DataKeptAnnotation] != "" {
				kept.add(cmp.Or(v.Labels[corev1beta1.RemoteClusterIDLabel], m.clusterID), "", "")
			}
		}
	}
	known[m.clusterID] = true
	for s, n := range kept {
		out.send(m.kept, n, peerOrRest(known, s.peer))
	}
}

// addMetrics registers the metrics of peerings and of identities.
func (c *controller) addMetrics() {
	m := &peerMetrics{
		clusterID: c.env.Config.ClusterID, clusters: c.liqo.Core().V1beta1().ForeignClusters(), maps: c.liqo.Offloading().V1beta1().NamespaceMaps(),
		offers: c.liqo.Sharing().V1alpha1().ResourceOffers(), nodes: c.own.Core().V1().Nodes(), pods: c.pods.Core().V1().Pods(),
	}
	if c.env.Config.Storage.StorageNamespace != "" {
		m.claims, m.volumes = c.own.Core().V1().PersistentVolumeClaims(), []cache.SharedIndexInformer{c.volumes.Core().V1().PersistentVolumes().Informer(), c.there.Core().V1().PersistentVolumes().Informer()}
	}
	m.describe()
	c.env.Registry.add(m)
	c.leased("metrics", m.run)
	c.env.Expiries.add(func() (all []expiry) {
		for _, id := range m.peers() {
			if e, ok := c.directory.Endpoint(id); ok {
				all = append(all, expiry{certificate: "identity", peer: id, life: e.Life})
			}
		}
		return all
	})
}

// probeSeconds registers the durations of probes of peers' API servers.
func probeSeconds(to *registry) func(peer string, d time.Duration, err error) {
	probes := histogram("liqod_peer_probe_seconds", "Time until a peer's API server answered a probe; result is ok or error.", "peer", "result")
	to.add(probes)
	var peers bound
	return func(peer string, d time.Duration, err error) {
		name := peers.value(peer)
		for _, result := range []string{"ok", "error"} { // a rate does not see the increase that a series begins with
			probes.WithLabelValues(name, result)
		}
		probes.WithLabelValues(name, resultOf(err)).Observe(d.Seconds())
	}
}

// run collects until ctx is done, as soon as the caches are filled.
func (m *peerMetrics) run(ctx context.Context) error {
	synced := []cache.InformerSynced{
		m.clusters.Informer().HasSynced, m.maps.Informer().HasSynced, m.offers.Informer().HasSynced, m.nodes.Informer().HasSynced, m.pods.Informer().HasSynced,
	}
	for _, informer := range m.volumes {
		synced = append(synced, m.claims.Informer().HasSynced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	m.leading.Store(true)
	defer m.leading.Store(false)
	<-ctx.Done()
	return nil
}

// Collect implements prometheus.Collector. Listers fail only for an invalid selector.
func (m *peerMetrics) Collect(out chan<- prometheus.Metric) {
	if !m.leading.Load() {
		return
	}
	known := map[string]bool{}
	for _, id := range m.peers() {
		known[id] = true
	}
	m.collectClusters(gauges(out), known)
	m.collectNodes(gauges(out))
	m.collectVolumes(gauges(out), known)
	byPhase := counts{}
	for _, pod := range store.Listed(m.pods.Lister().List(labels.Everything())) {
		byPhase.add(peerOrRest(known, pod.Labels[offloadingv1beta1.OriginLabel]), "", phaseOf(pod))
	}
	for s, n := range byPhase {
		gauges(out).send(m.peerPods, n, s.peer, s.phase)
	}
	for s, n := range m.countNamespaces(known) {
		gauges(out).send(m.namespaces, n, s.peer, s.direction, s.phase)
	}
	for s, n := range m.countOffers(known) {
		gauges(out).send(m.offered, n, s.peer, s.direction, s.phase)
	}
}

// counts are numbers of objects by their labels.
type counts map[series]float64

type series struct{ peer, direction, phase string }

func (c counts) add(peer, direction, phase string) { c[series{peer, direction, phase}]++ }

// peers returns the ids of the first mostValues peers.
func (m *peerMetrics) peers() []string {
	var all []string
	for _, fc := range store.Listed(m.clusters.Lister().List(labels.Everything())) {
		all = append(all, fc.Name)
	}
	slices.Sort(all)
	return all[:min(len(all), mostValues)]
}

func peerOrRest(known map[string]bool, id string) string {
	if known[id] {
		return id
	}
	return theRest
}

// phaseOf returns the phase of a pod. A pod has none until its kubelet has reported.
func phaseOf(pod *corev1.Pod) string {
	switch pod.Status.Phase {
	case corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown:
		return string(pod.Status.Phase)
	}
	return string(corev1.PodPending)
}

func (m *peerMetrics) collectClusters(out gauges, known map[string]bool) {
	for _, fc := range store.Listed(m.clusters.Lister().List(labels.Everything())) {
		id := fc.Name
		if !known[id] {
			continue
		}
		for _, check := range checks {
			if c := meta.FindStatusCondition(fc.Status.Conditions, check); c != nil {
				out.send(m.up, truth(c.Status == metav1.ConditionTrue), id, check)
				out.send(m.unknown, truth(c.Status == metav1.ConditionUnknown), id, check)
			}
		}
	}
}

func (m *peerMetrics) collectNodes(out gauges) {
	nodes, _ := m.nodes.Lister().List(labels.SelectorFromSet(labels.Set{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}))
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, node := range nodes[:min(len(nodes), mostValues)] {
		holds := func(kind corev1.NodeConditionType) float64 {
			return truth(store.NodeCondition(&node.Status, kind).Status == corev1.ConditionTrue)
		}
		peer := node.Labels[corev1beta1.RemoteClusterIDLabel]
		out.send(m.nodeReady, holds(corev1.NodeReady), peer, node.Name)
		out.send(m.nodeSilent, holds(offloadingv1beta1.ReasonControllerSilent), peer, node.Name)
		out.send(m.refuses, holds(offloadingv1beta1.ReasonReflectionRefused), peer, node.Name)
	}
}

// countNamespaces counts the entries of NamespaceMaps.
func (m *peerMetrics) countNamespaces(known map[string]bool) counts {
	out := counts{}
	for _, nm := range store.Listed(m.maps.Lister().List(labels.Everything())) {
		direction := outgoing
		if nm.Labels[offloadingv1beta1.ReplicatedLabel] == "true" {
			direction = incoming
		}
		peer := peerOrRest(known, nm.Labels[corev1beta1.RemoteClusterIDLabel])
		for name := range nm.Spec.DesiredMapping {
			if _, ok := nm.Status.CurrentMapping[name]; !ok {
				out.add(peer, direction, "Waiting")
			}
		}
		for _, twin := range nm.Status.CurrentMapping {
			switch twin.Phase {
			case offloadingv1beta1.MappingAccepted, offloadingv1beta1.MappingCreationLoopBackOff, offloadingv1beta1.MappingTerminating:
				out.add(peer, direction, string(twin.Phase))
			default:
				out.add(peer, direction, "Waiting")
			}
		}
	}
	return out
}

// countOffers counts the offers in both directions.
func (m *peerMetrics) countOffers(known map[string]bool) counts {
	out := counts{}
	for _, o := range store.Listed(m.offers.Lister().List(labels.Everything())) {
		peer, direction := o.Spec.ProviderClusterID, outgoing
		if peer == m.clusterID {
			peer, direction = o.Spec.ConsumerClusterID, incoming
		}
		out.add(peerOrRest(known, peer), direction, string(phaseOfOffer(o, direction)))
	}
	return out
}

// phaseOfOffer returns the phase of an offer. The status has the consumer's answer: an offer of
// this cluster has none until people here have approved it.
func phaseOfOffer(o *sharingv1alpha1.ResourceOffer, direction string) sharingv1alpha1.OfferPhase {
	if direction == incoming && !o.Spec.Approved && o.Spec.WithdrawalTimestamp == nil {
		return sharingv1alpha1.OfferManualActionRequired
	}
	switch o.Status.Phase {
	case sharingv1alpha1.OfferManualActionRequired, sharingv1alpha1.OfferAccepted, sharingv1alpha1.OfferRefused:
		return o.Status.Phase
	}
	return sharingv1alpha1.OfferPending
}
