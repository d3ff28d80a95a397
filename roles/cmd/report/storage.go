package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// What is read of volumes. storage list reads claims and classes apart.
const (
	ReadStoredClaims = "PersistentVolumeClaims"
	ReadStored       = "PersistentVolumes"
	ReadStoredClass  = "StorageClasses"
	ReadStoredSpaces = "Namespaces"
)

// Phases of a volume.
const (
	VolumeBound    = "bound"
	VolumeWaiting  = "waiting"
	VolumeKept     = "kept"
	VolumeLost     = "lost"
	VolumeDeleting = "deleting"
	VolumeMoving   = "moving"
	VolumeEmpty    = "empty"
)

// Annotations of Kubernetes on volumes and claims.
const (
	// ProvisionedBy names the provisioner that has made a volume.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// Provisioner names the one that has to make the volume of a claim.
	Provisioner     = "volume.kubernetes.io/storage-provisioner"
	betaProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// SelectedNode names the node that the scheduler has chosen for the pod of a claim, or the one that its
	// data was moved to.
	SelectedNode = "volume.kubernetes.io/selected-node"
)

// volumePrefix precedes the UID of the claim in the name of a PersistentVolume of liqod.
const volumePrefix = "pvc-"

// volumeOf returns the volume of a claim, or nil.
func (s *Snapshot) volumeOf(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return first(s.Volumes, func(v *corev1.PersistentVolume) bool { return v.Name == pvc.Spec.VolumeName })
}

// StoredVolume is a volume of the class liqo, or of a claim that a peer has in this cluster.
type StoredVolume struct {
	// Namespace and Claim are those of the claim of a user, in the cluster of Owner.
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// Owner is the id of the peer that has the claim; empty for this cluster.
	Owner string `json:"owner,omitempty"`
	Size  string `json:"size,omitempty"`
	// Where is the place of the data.
	Where string `json:"where"`
	Phase string `json:"phase"`
	// Why is the reason of the phase. Without a move, bound has none.
	Why string `json:"why,omitempty"`
	// Get and Delete say how to get kept data back, and how to delete it.
	Get    string `json:"get,omitempty"`
	Delete string `json:"delete,omitempty"`
	// Move is the move of the data to another cluster, or nil.
	Move *Move `json:"move,omitempty"`
}

// Storage is what storage list prints.
type Storage struct {
	Volumes []StoredVolume `json:"volumes"`
	Unread  []string       `json:"unread,omitempty"`
}

// storing is the judgement of the volumes of a Snapshot.
type storing struct {
	*Snapshot
	claims  map[types.UID]*corev1.PersistentVolumeClaim // all, by UID
	real    map[types.UID]*corev1.PersistentVolumeClaim // real claims, by the UID of the claim of the user
	volumes map[string]*corev1.PersistentVolume
	out     []StoredVolume
}

// Storage returns the volumes of the class liqo, wherever their data is. If the Namespaces were read, those
// of the claims that peers have in this cluster are among them.
func (s *Snapshot) Storage() Storage {
	l := &storing{Snapshot: s, claims: map[types.UID]*corev1.PersistentVolumeClaim{},
		real: map[types.UID]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}}
	for i := range s.Volumes {
		l.volumes[s.Volumes[i].Name] = &s.Volumes[i]
	}
	for i := range s.Claims {
		claim := &s.Claims[i]
		l.claims[claim.UID] = claim
		if isReal(claim) {
			l.real[types.UID(claim.Name)] = claim
		}
	}
	twins := l.twinNamespaces()
	for i := range s.Claims {
		switch claim := &s.Claims[i]; {
		case isReal(claim):
			l.leftReal(claim)
		case twins[claim.Namespace] != nil:
			l.ofPeer(claim, twins[claim.Namespace])
		case l.isLiqo(claim):
			l.ownClaim(claim)
		}
	}
	for i := range s.Volumes {
		l.unclaimed(&s.Volumes[i])
	}
	slices.SortStableFunc(l.out, func(a, b StoredVolume) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
	})
	return Storage{Volumes: l.out, Unread: slices.Sorted(maps.Keys(s.Unread))}
}

func isReal(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[offloadingv1beta1.LocalClaimUIDLabel] == claim.Name && claim.Annotations[offloadingv1beta1.LocalClaimAnnotation] != ""
}

// twinNamespaces returns the namespaces that this cluster has for peers.
func (l *storing) twinNamespaces() map[string]*corev1.Namespace {
	out := map[string]*corev1.Namespace{}
	for i := range l.Namespaces {
		if ns := &l.Namespaces[i]; offloadingv1beta1.TwinOf(ns) != "" {
			out[ns.Name] = ns
		}
	}
	return out
}

// isLiqo reports whether a claim is of a class of liqod. Without the right to read classes, the
// claims do not count that the scheduler has not placed yet.
func (l *storing) isLiqo(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Labels[offloadingv1beta1.OriginLabel] != "" {
		return false
	}
	if v := l.volumes[claim.Spec.VolumeName]; v != nil && v.Annotations[ProvisionedBy] == offloadingv1beta1.StorageProvisioner {
		return true
	}
	if by := cmp.Or(claim.Annotations[Provisioner], claim.Annotations[betaProvisioner]); by != "" {
		return by == offloadingv1beta1.StorageProvisioner
	}
	return slices.ContainsFunc(l.Classes, func(c *storagev1.StorageClass) bool {
		return c.Name == ptr.Deref(claim.Spec.StorageClassName, "") && c.Provisioner == offloadingv1beta1.StorageProvisioner
	})
}

// rowOf returns the row of a claim, without the place of its data.
func (l *storing) rowOf(claim *corev1.PersistentVolumeClaim) StoredVolume {
	size := claim.Status.Capacity.Storage()
	if size.IsZero() {
		size = claim.Spec.Resources.Requests.Storage()
	}
	v := StoredVolume{Namespace: claim.Namespace, Claim: claim.Name, Size: size.String(), Phase: VolumeBound}
	switch node := claim.Annotations[SelectedNode]; {
	case claim.Status.Phase == corev1.ClaimLost:
		v.Phase, v.Why = VolumeLost, fmt.Sprintf("PersistentVolume %s is gone", claim.Spec.VolumeName)
	case claim.Status.Phase == corev1.ClaimBound:
	case claim.Spec.VolumeName != "":
		v.Phase, v.Why = VolumeWaiting, fmt.Sprintf("for PersistentVolume %s", claim.Spec.VolumeName)
	case node != "":
		v.Phase, v.Why = VolumeWaiting, fmt.Sprintf("for its volume on node %s", node)
	default:
		v.Phase, v.Why = VolumeWaiting, "for its first pod"
	}
	return v
}

// ownClaim adds a claim of a user of this cluster.
func (l *storing) ownClaim(claim *corev1.PersistentVolumeClaim) {
	v := l.rowOf(claim)
	v.Where = "-"
	if volume := l.volumes[claim.Spec.VolumeName]; volume != nil {
		v.Where = l.dataIn(volume)
		if v.Phase == VolumeBound && isEmpty(volume) {
			v.Phase, v.Why = VolumeWaiting, "for its volume in cluster "+volume.Labels[corev1beta1.RemoteClusterIDLabel]
		}
	} else if claim.Spec.VolumeName != "" {
		v.Where = "unknown"
	}
	v.Move = l.moveOf(claim, v.Where)
	switch {
	case v.Move == nil:
	case v.Move.To == "":
		v.Why = v.Move.State
	default:
		v.Phase, v.Why = VolumeMoving, fmt.Sprintf("to node %s: %s", v.Move.To, v.Move.State)
	}
	l.out = append(l.out, v)
}

// dataIn returns where the data of a PersistentVolume is.
func (l *storing) dataIn(volume *corev1.PersistentVolume) string {
	if peer := volume.Labels[corev1beta1.RemoteClusterIDLabel]; peer != "" && volume.Annotations[ProvisionedBy] == offloadingv1beta1.StorageProvisioner {
		if twin := l.twinIn(peer, volume); twin != "" {
			return fmt.Sprintf("cluster %s, namespace %s", peer, twin)
		}
		return Place(peer)
	}
	if node := nodeOf(volume); node != "" {
		return thisCluster + ", node " + node
	}
	return thisCluster
}

// twinIn returns the namespace of a provider that has the data of a volume, if it is known.
func (l *storing) twinIn(peer string, volume *corev1.PersistentVolume) string {
	m := l.ownMap(peer)
	if m == nil || volume.Spec.ClaimRef == nil {
		return ""
	}
	twin := m.Status.CurrentMapping[volume.Spec.ClaimRef.Namespace].RemoteNamespace
	if len(validation.IsDNS1123Label(twin)) > 0 { // the provider has written it
		return ""
	}
	return twin
}

// nodeOf returns the one node that has the data of a volume, or "".
func nodeOf(volume *corev1.PersistentVolume) string {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil || len(volume.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
		if (r.Key == corev1.LabelHostname || r.Key == "metadata.name") && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			return r.Values[0]
		}
	}
	return ""
}

// ofPeer adds a claim in the twin namespace of a peer. Of a namespace that is not kept, claims of
// others than the peer do not count.
func (l *storing) ofPeer(claim *corev1.PersistentVolumeClaim, ns *corev1.Namespace) {
	why, kept := ns.Annotations[offloadingv1beta1.DataKeptAnnotation]
	if claim.Labels[offloadingv1beta1.OriginLabel] == "" && (!kept || claim.Spec.VolumeName == "") {
		return
	}
	v := l.rowOf(claim)
	tenant, _, _ := strings.Cut(offloadingv1beta1.TwinOf(ns), "/")
	v.Owner = strings.TrimPrefix(tenant, corev1beta1.TenantNamespacePrefix)
	v.Namespace = cmp.Or(ns.Annotations[offloadingv1beta1.OriginalNameAnnotation], ns.Name)
	v.Where = fmt.Sprintf("%s, namespace %s", thisCluster, ns.Name)
	if volume := l.volumes[claim.Spec.VolumeName]; volume != nil && nodeOf(volume) != "" {
		v.Where += ", node " + nodeOf(volume)
	}
	switch {
	case claim.DeletionTimestamp != nil || ns.DeletionTimestamp != nil:
		v.Phase, v.Why = VolumeDeleting, "it is being deleted"
	case kept && claim.Spec.VolumeName != "":
		v.Phase, v.Why = VolumeKept, why
		if len(validation.IsDNS1123Label(v.Namespace)) == 0 { // the peer has chosen it
			v.Get = fmt.Sprintf("Cluster %s has it again once it uses this cluster, and offloads its namespace %s again.\nIn cluster %s:\n%s offload namespace %s", v.Owner, v.Namespace, v.Owner, l.Program, v.Namespace)
		}
		v.Delete = fmt.Sprintf("kubectl -n %s delete pvc %s\nOr all data of the namespace:\nkubectl annotate namespace %s %s=%s",
			ns.Name, claim.Name, ns.Name, offloadingv1beta1.DeleteVolumesAnnotation, ns.Name)
	}
	l.out = append(l.out, v)
}

// unclaimed adds a PersistentVolume of liqod whose claim is gone.
func (l *storing) unclaimed(volume *corev1.PersistentVolume) {
	ref := volume.Spec.ClaimRef
	if ref == nil || volume.Annotations[ProvisionedBy] != offloadingv1beta1.StorageProvisioner || l.claims[ref.UID] != nil {
		return
	}
	v := StoredVolume{Namespace: ref.Namespace, Claim: ref.Name, Size: volume.Spec.Capacity.Storage().String(), Where: l.dataIn(volume), Phase: VolumeKept}
	peer, unsure := volume.Labels[corev1beta1.RemoteClusterIDLabel], l.Unread[ReadStoredClaims] != nil || l.Unread[ReadClaims] != nil
	why, kept := volume.Annotations[offloadingv1beta1.DataKeptAnnotation]
	switch {
	case unsure && volume.Status.Phase != corev1.VolumeReleased:
		v.Phase = VolumeBound
	case isEmpty(volume) && stays(volume):
		v.Phase, v.Why = VolumeEmpty, fmt.Sprintf("its claim is gone, and cluster %s had made no volume for it when this cluster last saw it", peer)
		v.Delete = fmt.Sprintf("In cluster %s, this shows if it has made one since:\n%s storage list\nThen here, where this PersistentVolume contains no data:\nkubectl delete pv %s", peer, l.Program, volume.Name)
	case kept:
		v.Why = why
	case volume.Status.Phase == corev1.VolumeAvailable:
		v.Why = fmt.Sprintf("PersistentVolume %s waits for a claim", volume.Name)
	case stays(volume):
		v.Why = fmt.Sprintf("its claim is gone, and the reclaim policy of PersistentVolume %s is %s", volume.Name, volume.Spec.PersistentVolumeReclaimPolicy)
	case peer != "":
		v.Phase, v.Why = VolumeDeleting, fmt.Sprintf("its claim is gone: it is deleted once namespace %s is offloaded and cluster %s reachable, or kept if the namespace is gone", ref.Namespace, peer)
	default:
		v.Phase, v.Why = VolumeDeleting, "its claim is gone: it is deleted, or kept if the namespace is gone"
	}
	switch {
	case v.Phase != VolumeKept || unsure:
	case peer != "":
		l.keptThere(&v, volume, peer)
	default:
		l.keptHere(&v, volume)
	}
	l.out = append(l.out, v)
}

// keptThere says what to do about data that a provider has. The deletion names the data by the UID of
// its claim: a later claim of the same name may have other data there.
func (l *storing) keptThere(v *StoredVolume, volume *corev1.PersistentVolume, peer string) {
	leftover, key := "kubectl delete pv "+volume.Name, v.Namespace+"/"+v.Claim
	list := fmt.Sprintf("In cluster %s, this shows what is kept there, with the commands:\n%s storage list", peer, l.Program)
	next := l.claimNamed(v.Namespace, v.Claim)
	if next != nil && next.Spec.VolumeName != "" {
		v.Get = fmt.Sprintf("PersistentVolumeClaim %s has PersistentVolume %s now: only a claim of this name without a volume can get this data.", key, next.Spec.VolumeName)
		if has := l.volumes[next.Spec.VolumeName]; has == nil || has.Labels[corev1beta1.RemoteClusterIDLabel] == peer {
			v.Get += "\nIf it was given this data, nothing else is kept."
			v.Delete = list + "\nThen here, where this PersistentVolume contains no data:\n" + leftover
			return
		}
	} else if annotate := offloadingv1beta1.Command("kubectl -n %s annotate pvc %s", v.Namespace, v.Claim); annotate != "" { // the provider may have chosen the names
		v.Get = fmt.Sprintf("Offload namespace %s to cluster %s, create PersistentVolumeClaim %s if it is gone, and let its first pod run there:\n%s %s=true",
			v.Namespace, peer, key, annotate, offloadingv1beta1.AdoptRemoteVolumeAnnotation)
		has := first(l.Namespaces, func(ns *corev1.Namespace) bool { return ns.Name == v.Namespace })
		switch had := volume.Annotations[offloadingv1beta1.NamespaceUIDAnnotation]; {
		case l.Unread[ReadStoredSpaces] != nil:
		case has == nil:
			v.Get += "\nThe namespace that had the data is gone: once there is one of its name, this shows what lets it have the data:\n" + l.Program + " storage list"
		case had != string(has.UID):
			v.Get += fmt.Sprintf("\nAn earlier namespace of this name had the data, as far as is known. Who may write PersistentVolumes lets this one have it:\nkubectl annotate pv %s --overwrite %s=%s",
				volume.Name, offloadingv1beta1.NamespaceUIDAnnotation, has.UID)
		}
	}
	if twin := l.twinIn(peer, volume); twin != "" {
		list = fmt.Sprintf("In cluster %s:\nkubectl -n %s delete pvc -l %s=%s", peer, twin, offloadingv1beta1.LocalClaimUIDLabel, firstClaim(volume))
	}
	v.Delete = list + "\nThen here:\n" + leftover
}

// firstClaim is the UID of the claim that a volume was made for. A later claim may be bound to it.
func firstClaim(volume *corev1.PersistentVolume) types.UID {
	return types.UID(strings.TrimPrefix(volume.Name, volumePrefix))
}

// keptHere says what to do about data that a real claim has.
func (l *storing) keptHere(v *StoredVolume, volume *corev1.PersistentVolume) {
	v.Delete = "kubectl delete pv " + volume.Name
	real := l.real[firstClaim(volume)]
	if real == nil {
		v.Why += fmt.Sprintf("; the real claim %s is gone", firstClaim(volume))
		return
	}
	v.Where = fmt.Sprintf("%s, PersistentVolumeClaim %s/%s", v.Where, real.Namespace, real.Name)
	v.Get = fmt.Sprintf("A claim that is bound again to PersistentVolume %s has the data.", volume.Name)
	v.Delete = fmt.Sprintf("kubectl -n %s delete pvc %s\n%s", real.Namespace, real.Name, v.Delete)
}

// leftReal adds a real claim that no claim of a user and no PersistentVolume leads to.
func (l *storing) leftReal(real *corev1.PersistentVolumeClaim) {
	uid := types.UID(real.Name)
	if volume := l.volumes[volumePrefix+string(uid)]; l.claims[uid] != nil || volume != nil || real.Spec.VolumeName == "" || l.Unread[ReadStored] != nil {
		return
	}
	v := l.rowOf(real)
	v.Namespace, v.Claim, _ = strings.Cut(real.Annotations[offloadingv1beta1.LocalClaimAnnotation], "/")
	v.Where = fmt.Sprintf("%s, PersistentVolumeClaim %s/%s", thisCluster, real.Namespace, real.Name)
	v.Phase, v.Why = VolumeKept, fmt.Sprintf("its claim and PersistentVolume %s are gone", volumePrefix+string(uid))
	v.Delete = fmt.Sprintf("kubectl -n %s delete pvc %s", real.Namespace, real.Name)
	if real.DeletionTimestamp != nil {
		v.Phase, v.Why, v.Delete = VolumeDeleting, "it is being deleted", ""
	}
	l.out = append(l.out, v)
}

// Err returns an error if nothing could be read about volumes.
func (s Storage) Err() error {
	if slices.Contains(s.Unread, ReadStoredClaims) && slices.Contains(s.Unread, ReadStored) {
		return errors.New("no right to read PersistentVolumeClaims and PersistentVolumes")
	}
	return nil
}

// Text is what storage list prints.
func (s Storage) Text() string {
	var b strings.Builder
	if len(s.Volumes) == 0 {
		b.WriteString("No volumes of the class liqo, and none of peers.\n")
	} else {
		fmt.Fprintln(&b, Count(len(s.Volumes), "volume")+".")
	}
	table(&b, "CLAIM\tOF\tSIZE\tDATA IN\tPHASE", s.Volumes, func(v StoredVolume) string {
		phase := v.Phase
		if v.Phase == VolumeWaiting {
			phase += " " + v.Why
		}
		return Line(fmt.Sprintf("%s/%s", v.Namespace, v.Claim)) + "\t" + Line(Place(v.Owner)) + "\t" + v.Size + "\t" + Line(v.Where) + "\t" + Line(phase)
	})
	for _, v := range s.Volumes {
		if v.Phase == VolumeWaiting || v.Why == "" {
			continue
		}
		fmt.Fprintf(&b, "\n%s/%s of %s, %s in %s, is %s: %s\n", Line(v.Namespace), Line(v.Claim), Line(Place(v.Owner)), v.Size, Line(v.Where), v.Phase, Line(v.Why))
		finish, undo := "", ""
		if v.Move != nil {
			finish, undo = v.Move.Finish, v.Move.Undo
		}
		for _, part := range []struct{ title, text string }{{"To get it back", v.Get}, {"To delete it", v.Delete}, {"To go on with the move", finish}, {"To leave it there", undo}} {
			if part.text != "" {
				fmt.Fprintf(&b, "  %s:\n    %s\n", part.title, strings.ReplaceAll(part.text, "\n", "\n    "))
			}
		}
	}
	if len(s.Unread) > 0 {
		fmt.Fprintf(&b, "\nNo right to read %s.\n", strings.Join(s.Unread, ", "))
	}
	return b.String()
}

// isEmpty reports whether the provider had made no volume when the consumer last saw its claim there.
func isEmpty(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[offloadingv1beta1.NoVolumeAnnotation] == "true"
}

// stays reports whether nothing deletes the data of a volume whose claim is gone.
func stays(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[offloadingv1beta1.DataKeptAnnotation] != "" || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
}

// movePatience is longer than a step of storage move lasts that leaves no trace.
const movePatience = 2 * time.Minute

// moveOf returns the move of a claim, or nil. from is the place of its data.
func (s *Snapshot) moveOf(pvc *corev1.PersistentVolumeClaim, from string) *Move {
	to, other := pvc.Annotations[offloadingv1beta1.MoveToAnnotation], pvc.Annotations[offloadingv1beta1.DiscardCopyAnnotation]
	out := &Move{Namespace: pvc.Namespace, Claim: pvc.Name, From: from, To: to}
	switch {
	case to == "" && other == "":
		return nil
	case to == "" && other == offloadingv1beta1.CopyHere:
		out.State = "the other copy, in this cluster, is being deleted"
		return out
	case to == "":
		out.State = fmt.Sprintf("the other copy, behind virtual node %s, is deleted once its cluster can be reached", other)
		return out
	}
	command := fmt.Sprintf("%s storage move -n %s %s", s.Program, pvc.Namespace, pvc.Name)
	out.Undo = command + " --undo"
	out.Finish = offloadingv1beta1.Command(command+" --to %s", to) // a user of the namespace has written it
	c, copied := s.Copies[pvc.UID]
	out.State = c.Progress
	switch idle := s.Taken.Sub(lastMoved(pvc)) > movePatience; {
	case pvc.Annotations[SelectedNode] == to:
		out.State, out.Undo, out.Stopped = "the copy is verified, and the claim gets it", "", idle
	case copied && !c.Whole.IsZero():
		out.Stopped = s.Taken.Sub(c.Whole) > movePatience
	case copied:
		out.Stopped = c.Failed
		return out
	case s.Copies == nil:
		out.State = "it is being copied"
	default:
		out.State, out.Stopped = "no pod copies it", idle
	}
	if out.Stopped {
		out.State += "; no command goes on with the move"
	}
	return out
}

// lastMoved returns the time at which storage move wrote to a claim.
func lastMoved(pvc *corev1.PersistentVolumeClaim) (at time.Time) {
	for _, f := range pvc.ManagedFields {
		if f.Manager == offloadingv1beta1.MoveFieldManager && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// inOneLine says in one line what is moved, and how far that is.
func (m *Move) inOneLine() string {
	if m.To == "" {
		return fmt.Sprintf("in %s: %s", m.From, m.State)
	}
	return fmt.Sprintf("from %s to node %s: %s", m.From, m.To, m.State)
}

// commandsOn returns the commands by which a person goes on.
func (m *Move) commandsOn() string {
	if m.Undo == "" || m.Finish == "" {
		return m.Finish + m.Undo
	}
	return fmt.Sprintf("%s\nor, to leave the data where it is:\n%s", m.Finish, m.Undo)
}
