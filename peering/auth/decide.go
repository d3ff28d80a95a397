package auth

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

const (
	longestUID     = 64
	longestVersion = 128
	mostRanges     = 16
)

// refusal is an error that the peer is told.
type refusal struct {
	trust.Refusal
	// about is the ForeignCluster that the request conflicts with, or else the Secret of its
	// token, for an event on it; nil: none.
	about runtime.Object
	// rival is that ForeignCluster, if another cluster has the requested id; else nil.
	rival *corev1beta1.ForeignCluster
}

// Error implements error.
func (r *refusal) Error() string { return r.Message }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{Refusal: trust.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// Identity identifies a cluster.
type Identity struct {
	// ID is the cluster id. UID is the UID of the namespace kube-system.
	ID, UID string
}

// enrolment is a parsed request for an enrolment.
type enrolment struct {
	Identity
	ranges []string
	// leftOut are the requested ranges that are not accepted.
	leftOut []string
	token   trust.Token
	csr     trust.CSR
}

// read parses a request, and refuses one that is invalid for any client.
func read(req trust.EnrollRequest, self Identity) (enrolment, error) {
	e := enrolment{Identity: Identity{ID: req.ClusterID, UID: req.ClusterUID}, ranges: req.AddressRanges}
	var err error
	if e.token, err = trust.ParseToken(req.Token); err != nil {
		return e, refuse(trust.ReasonInvalid, "%v", err)
	}
	if e.token.ClusterID != self.ID {
		return e, refuse(trust.ReasonInvalid, "the token was made by cluster %s, but this is cluster %s: the address belongs to another cluster", e.token.ClusterID, self.ID)
	}
	if err := trust.CheckClusterID(req.ClusterID); err != nil {
		return e, refuse(trust.ReasonInvalid, "%v", err)
	}
	if !word(req.ClusterUID, longestUID) || req.ClusterUID == "" {
		return e, refuse(trust.ReasonInvalid, "clusterUID: the UID of the namespace kube-system is accepted")
	}
	if !word(req.Version, longestVersion) {
		return e, refuse(trust.ReasonInvalid, "version: a short word is accepted")
	}
	if err := checkRanges(req.AddressRanges); err != nil {
		return e, err
	}
	if e.csr, err = trust.CheckCSR(req.CSR); err != nil {
		return e, refuse(trust.ReasonInvalid, "%v", err)
	}
	if want := corev1beta1.PeerUserPrefix + req.ClusterID + ":" + e.csr.Serial; e.csr.User != want {
		return e, refuse(trust.ReasonInvalid, "the certificate request is for %.200q: %q is accepted for this cluster and key", e.csr.User, want)
	}
	return e, notSelf(e.Identity, self)
}

// word reports whether a text is short and printable.
func word(s string, longest int) bool {
	return len(s) <= longest && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func notSelf(peer, self Identity) error {
	switch {
	case peer.ID == self.ID:
		return refuse(trust.ReasonConflict, "both clusters have the id %q: a cluster cannot be a peer of itself, and each needs its own id (discovery.config.clusterID of the chart)", self.ID)
	case peer.UID == self.UID:
		return refuse(trust.ReasonConflict, "cluster %s has the same kube-system namespace as this one, %s: they are one cluster, or one was copied from the other", peer.ID, self.ID)
	}
	return nil
}

// accepts refuses an enrolment with a range outside of the accepted ones.
func accepts(e enrolment, accepted []netip.Prefix) error {
	for _, text := range e.ranges {
		r, err := netip.ParsePrefix(text)
		if err != nil || !slices.ContainsFunc(accepted, func(p netip.Prefix) bool { return p.Bits() <= r.Bits() && p.Contains(r.Addr()) }) {
			return refuse(trust.ReasonRefused, "addressRanges: %.60s is not accepted: cluster %s accepts ranges within %s (its setting authentication.acceptRanges)",
				text, e.token.ClusterID, ipamv1alpha1.RangesText(accepted))
		}
	}
	return nil
}

// checkRanges refuses ranges in which no pod of a peer can be.
func checkRanges(ranges []string) error {
	if len(ranges) > mostRanges {
		return refuse(trust.ReasonInvalid, "%d addressRanges: at most %d are accepted", len(ranges), mostRanges)
	}
	for _, text := range ranges {
		r, err := netip.ParsePrefix(text)
		if err != nil || r.Masked() != r || r.Bits() == 0 {
			return refuse(trust.ReasonInvalid, "addressRanges: %.60q is not a range without host bits, as 10.42.0.0/16", text)
		}
		for _, special := range ipamv1alpha1.SpecialRanges() {
			if special.Prefix.Overlaps(r) {
				return refuse(trust.ReasonInvalid, "addressRanges: %s has addresses of %s, %s, which no pod has", text, special.Prefix, special.Name)
			}
		}
		for _, service := range ipamv1alpha1.MetadataServices() {
			if around := surroundings(service.Prefix.Addr()); around.Contains(r.Addr()) && around.Bits() <= r.Bits() {
				return refuse(trust.ReasonInvalid, "addressRanges: %s is within %s, which has %s", text, around, service.Name)
			}
		}
	}
	return nil
}

// surroundings returns the range in which there is nothing but a metadata service. A wider range
// may be one of pods: there, the address itself is left out of EndpointSlices.
func surroundings(service netip.Addr) netip.Prefix {
	bits := 64
	if service.Is4() {
		bits = 24
	}
	return netip.PrefixFrom(service, bits).Masked()
}

// badToken is the refusal of every invalid token. It does not say what is wrong, so that
// guessing reveals nothing.
func badToken() *refusal {
	return refuse(trust.ReasonUnauthorized, "the token is unknown here, used up, revoked, expired, or for another cluster: get a new one (liqod token create)")
}

// good checks a token for an enrolment. use is the index of the earlier redemption by the
// same cluster and key, or -1.
func good(record trust.Record, e enrolment, now time.Time) (use int, err error) {
	matches := trust.Matches(record.Hash, e.token.Secret) // always computed, so that the duration reveals nothing
	use = record.Redemption(e.ID, e.csr.Serial)
	switch {
	case !matches, record.Expired(now), record.ClusterID != "" && record.ClusterID != e.ID, use < 0 && record.UsedUp():
		return -1, badToken()
	}
	return use, nil
}

// peerOf returns the record of a peer, or nil if there is none.
func peerOf(all []*corev1beta1.ForeignCluster, id string) *corev1beta1.ForeignCluster {
	i := slices.IndexFunc(all, func(fc *corev1beta1.ForeignCluster) bool { return fc.Name == id })
	if i < 0 {
		return nil
	}
	return all[i]
}

// judge decides whether this cluster accepts a peer, and returns its record, if any. bound
// means that the token was made for this peer alone. use is the earlier redemption by this
// cluster and key; nil: none.
func judge(all []*corev1beta1.ForeignCluster, e enrolment, bound bool, use *trust.Redemption) (*corev1beta1.ForeignCluster, error) {
	for _, other := range all {
		if other.Name != e.ID && knownUID(other) == e.UID {
			return nil, &refusal{about: other, Refusal: trust.Refusal{Reason: trust.ReasonRefused,
				Message: fmt.Sprintf("cluster %s is registered here as %s: one cluster has two ids, or one was copied from the other; end the peering with %s first", e.ID, other.Name, other.Name)}}
		}
	}
	fc := peerOf(all, e.ID)
	if fc == nil {
		if use != nil && !use.Granted.IsZero() {
			return nil, revoked()
		}
		return nil, nil
	}
	if err := takes(fc, e); err != nil {
		return nil, err
	}
	return fc, replaces(fc, e, bound, use)
}

// takes refuses a peer that this cluster does not accept under any token.
func takes(fc *corev1beta1.ForeignCluster, e enrolment) error {
	switch uid := knownUID(fc); {
	case fc.DeletionTimestamp != nil:
		return refuse(trust.ReasonBusy, "the ForeignCluster of cluster %s is being deleted here: try again", e.ID)
	case uid != "" && uid != e.UID:
		return &refusal{about: fc, rival: fc, Refusal: trust.Refusal{Reason: trust.ReasonConflict,
			Message: fmt.Sprintf("another cluster with the id %s is a peer here: give one of them another id; if the cluster was rebuilt, end its old peering here first (liqod unpeer %s)", e.ID, e.ID)}}
	case fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo:
		return refuse(trust.ReasonRefused, "this cluster does not let cluster %s use it (spec.incomingPeeringEnabled of ForeignCluster %s is No)", e.ID, fc.Name)
	}
	return nil
}

// replaces decides whether an enrolment may replace the recorded one. A revoked enrolment
// cannot be revived by a repeated request. A token that is not bound to this cluster id
// cannot replace the identity of an enrolled peer.
func replaces(fc *corev1beta1.ForeignCluster, e enrolment, bound bool, use *trust.Redemption) error {
	last, live := fc.Annotations[corev1beta1.EnrolmentAnnotation], fc.Spec.UserName != ""
	switch {
	case last == e.csr.Serial:
		if !live || !ofSerial(fc.Spec.UserName, e) {
			return revoked()
		}
		return nil
	case use != nil && (!use.Granted.IsZero() || use.Replaces != last):
		return revoked()
	case live && !bound:
		return &refusal{about: fc, Refusal: trust.Refusal{Reason: trust.ReasonUnauthorized,
			Message: fmt.Sprintf("cluster %s has an identity here already: to replace it, make a token for that cluster alone (liqod token create --for %s), or end its peering here first", e.ID, e.ID)}}
	}
	return nil
}

func revoked() *refusal {
	r := refuse(trust.ReasonUnauthorized, "this cluster has ended this enrolment: a new one needs a new key and a new token (liqod token create)")
	r.NewKey = true
	return r
}

// ofSerial reports whether user is the user of an enrolment, with a certificate or a token.
func ofSerial(user string, e enrolment) bool {
	return user == e.csr.User || user == corev1beta1.PeerAccountUser(e.ID, corev1beta1.PeerAccountPrefix+e.csr.Serial)
}

// knownUID returns the UID of a peer's kube-system namespace: the one read from the peer,
// else the one in its enrolment.
func knownUID(fc *corev1beta1.ForeignCluster) string {
	return cmp.Or(string(fc.Status.ClusterUID), fc.Annotations[corev1beta1.EnrolledUIDAnnotation])
}

// recorded returns the record of a peer that is enrolled as user, by a token with a trust. Fields
// that people have written stay.
func recorded(have *corev1beta1.ForeignCluster, e enrolment, user string, given corev1beta1.Trust) *corev1beta1.ForeignCluster {
	fc := &corev1beta1.ForeignCluster{}
	if have != nil {
		fc = have.DeepCopy()
	} else {
		fc.Name, fc.Spec.ClusterID = e.ID, e.ID
		fc.Spec.OutgoingPeeringEnabled, fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringAuto, corev1beta1.PeeringAuto
	}
	if !store.HasFinalizer(fc, corev1beta1.ForeignClusterFinalizer) {
		fc.Finalizers = append(fc.Finalizers, corev1beta1.ForeignClusterFinalizer)
	}
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, corev1beta1.EnrolmentAnnotation, e.csr.Serial)
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, corev1beta1.EnrolledUIDAnnotation, e.UID)
	fc.Spec.UserName = user
	if fc.Spec.Trust == "" {
		fc.Spec.Trust = given
	}
	if len(fc.Spec.AddressRanges) == 0 && e.ranges != nil {
		fc.Spec.AddressRanges = inOrder(e.ranges)
		metav1.SetMetaDataAnnotation(&fc.ObjectMeta, corev1beta1.EnrolledRangesAnnotation, strings.Join(fc.Spec.AddressRanges, ","))
	}
	return fc
}

// member returns the record of a peer whose client proved to be user. It refuses a user
// without rights.
func member(all []*corev1beta1.ForeignCluster, id, user string) (*corev1beta1.ForeignCluster, error) {
	fc := peerOf(all, id)
	if fc == nil || fc.DeletionTimestamp != nil || user == "" || fc.Spec.UserName != user || !corev1beta1.ValidPeerUser(id, user) {
		return nil, refuse(trust.ReasonUnauthorized, "these credentials have no rights here, or have lost them, as credentials of cluster %.60q: the cluster needs a new token (liqod token create)", id)
	}
	return fc, nil
}

// podPage is the number of pods in a page of a list, and podPages the number of pages that
// are read at most.
const (
	podPage  = 500
	podPages = 4
)

// foreign splits the ranges that a peer announces for its endpoints. Ranges that overlap
// with this cluster's own addresses are returned in ours: with such an endpoint, the peer
// could redirect traffic to this cluster's own addresses.
func foreign(ranges []string, own []netip.Prefix) (theirs, ours []string) {
	for _, text := range ranges {
		r, err := netip.ParsePrefix(text)
		if err != nil || slices.ContainsFunc(own, r.Overlaps) {
			ours = append(ours, text)
			continue
		}
		theirs = append(theirs, text)
	}
	return theirs, ours
}

// inOrder returns ranges sorted and without duplicates, as they are recorded.
func inOrder(ranges []string) []string { return slices.Compact(slices.Sorted(slices.Values(ranges))) }

// withoutOwn removes the ranges that overlap with this cluster's own addresses from an
// enrolment.
func (e *Endpoint) withoutOwn(ctx context.Context, ask enrolment) (enrolment, error) {
	if len(ask.ranges) == 0 {
		return ask, nil
	}
	own, err := e.cfg.Home.Own(ctx)
	if err != nil {
		return ask, err
	}
	ask.ranges, ask.leftOut = foreign(ask.ranges, own)
	return ask, nil
}

// tellLeftOut records an event about the ranges of a peer that were left out. It records
// none if people have written the ranges themselves.
func (e *Endpoint) tellLeftOut(ctx context.Context, ask enrolment) {
	if len(ask.leftOut) == 0 {
		return
	}
	e.cfg.Log.Warn("the peer is enrolled without the address ranges that overlap addresses of this cluster",
		zap.String("peer", ask.ID), zap.Strings("ranges", ask.leftOut))
	peers, err := e.cfg.Home.Peers(ctx)
	if err != nil {
		return
	}
	fc := peerOf(peers, ask.ID)
	if fc == nil || !slices.Equal(fc.Spec.AddressRanges, inOrder(ask.ranges)) {
		return
	}
	e.cfg.Home.Told(fc, corev1beta1.ReasonAddressRangesLeftOut, fmt.Sprintf(
		"cluster %s named address ranges in which this cluster has addresses of its own, and they are left out: %s. Endpoints of its Services there are not used here: "+
			"if no pod of this cluster can be in a part of them, put that part into spec.addressRanges of ForeignCluster %s", ask.ID, strings.Join(ask.leftOut, ", "), fc.Name))
}

// Own implements Home. It returns the ranges of the settings, the pod ranges and addresses
// of Nodes, and the ranges of Services. It adds the addresses of running pods, for networks
// that give Nodes no pod ranges.
func (k *Cluster) Own(ctx context.Context) ([]netip.Prefix, error) {
	var texts []string
	nodes, err := store.Find[*corev1.Node](ctx, "node", k.cfg.Kube.CoreV1().Nodes(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, n := range nodes {
		own[n.Name] = !offloadingv1beta1.IsVirtual(n)
		texts = append(texts, n.Spec.PodCIDRs...)
		for _, a := range n.Status.Addresses {
			texts = append(texts, a.Address)
		}
	}
	pods, err := k.podAddresses(ctx, own)
	if err != nil {
		return nil, err
	}
	services, err := k.serviceRanges(ctx)
	if err != nil {
		return nil, err
	}
	texts = slices.Concat(texts, pods, services)
	if host, err := url.Parse(k.cfg.Host); err == nil {
		texts = append(texts, host.Hostname()) // inside a cluster, this is the address of a Service
	}
	return append(prefixes(texts), k.cfg.Ranges...), nil
}

// podAddresses returns the addresses of liqod's own pods, and of others on the nodes of
// this cluster. Pods on virtual nodes have addresses of a peer. Of a large cluster it reads
// the first pods only: they show in which ranges there are pods.
func (k *Cluster) podAddresses(ctx context.Context, own map[string]bool) (texts []string, err error) {
	pods, err := k.cfg.Kube.CoreV1().Pods(k.cfg.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", k.cfg.Namespace, err)
	}
	texts = addressesOf(pods.Items, func(*corev1.Pod) bool { return true })
	options := metav1.ListOptions{Limit: podPage, FieldSelector: "status.phase=Running"}
	for range podPages {
		pods, err := k.cfg.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		texts = append(texts, addressesOf(pods.Items, func(pod *corev1.Pod) bool { return own[pod.Spec.NodeName] })...)
		if options.Continue = pods.Continue; options.Continue == "" {
			break
		}
	}
	return texts, nil
}

func addressesOf(pods []corev1.Pod, counts func(*corev1.Pod) bool) (texts []string) {
	for i := range pods {
		if !counts(&pods[i]) {
			continue
		}
		for _, ip := range pods[i].Status.PodIPs {
			texts = append(texts, ip.IP)
		}
	}
	return texts
}

func (k *Cluster) serviceRanges(ctx context.Context) (texts []string, err error) {
	services, err := k.cfg.Kube.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err): // before Kubernetes 1.33
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing the ranges of Services: %w", err)
	}
	for i := range services.Items {
		texts = append(texts, services.Items[i].Spec.CIDRs...)
	}
	return texts, nil
}

// prefixes parses the texts that are ranges or addresses, and skips the others.
func prefixes(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if r, err := netip.ParsePrefix(text); err == nil {
			out = append(out, r.Masked())
		} else if a, err := netip.ParseAddr(text); err == nil {
			a = a.Unmap().WithZone("")
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
