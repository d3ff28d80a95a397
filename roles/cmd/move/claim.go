package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/cmd/report"
)

// volumeProtection is the finalizer that keeps a bound PersistentVolume.
const volumeProtection = "kubernetes.io/pv-protection"

// place is where a volume is.
type place struct {
	// cluster is the id of a provider, or empty for this cluster.
	cluster string
	// node is one through which pods get there. It is empty if there is none.
	node string
}

// String implements fmt.Stringer.
func (p place) String() string { return report.Place(p.cluster) }

// copy is the value of the annotation by which the volume here is deleted.
func (p place) copy() string {
	if p.cluster == "" {
		return offloadingv1beta1.CopyHere
	}
	return p.node
}

// read reads the claim.
func (m *mover) read(ctx context.Context) error {
	claim, err := m.Kube.CoreV1().PersistentVolumeClaims(m.Namespace).Get(ctx, m.Claim, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", m.Namespace, m.Claim, err)
	}
	if m.claim != nil && m.claim.UID != claim.UID {
		return fmt.Errorf("PersistentVolumeClaim %s/%s was deleted and created again meanwhile", m.Namespace, m.Claim)
	}
	m.claim = claim
	return nil
}

// look reads the claim, and finds out where its data is and where it is to go.
func (m *mover) look(ctx context.Context) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	var err error
	if m.to, err = m.placeOfNode(ctx, m.Node); err != nil {
		return err
	}
	if m.to.node == "" {
		return fmt.Errorf("node %s does not exist: `kubectl get nodes` lists the nodes of this cluster, and the virtual ones of providers", m.Node)
	}
	if m.committed() {
		return nil // the earlier volume may be gone already
	}
	volume, err := m.volume(ctx)
	if err != nil {
		return err
	}
	if volume == nil || m.claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("PersistentVolumeClaim %s has no volume (phase %s): only a claim that is bound has data to move", m.Claim, m.claim.Status.Phase)
	}
	if volume.Annotations[report.ProvisionedBy] != offloadingv1beta1.StorageProvisioner {
		return fmt.Errorf("PersistentVolume %s of PersistentVolumeClaim %s was not made by liqod: only claims of the class liqo can be moved", volume.Name, m.Claim)
	}
	if m.from, err = m.placeOfVolume(ctx, volume); err == nil && m.relays() {
		m.relay, err = m.nodeHere(ctx)
	}
	return err
}

// nodeHere returns a node of this cluster that runs pods.
func (m *mover) nodeHere(ctx context.Context) (string, error) {
	nodes, err := m.nodes(ctx)
	for _, node := range nodes {
		if placeOf(node).cluster == "" && report.NodeReady(node) && !node.Spec.Unschedulable {
			return node.Name, nil
		}
	}
	return "", cmp.Or(err, errors.New("no node of this cluster is Ready: the data goes through a pod there"))
}

func (m *mover) nodes(ctx context.Context) ([]*corev1.Node, error) {
	return store.Find[*corev1.Node](ctx, "node", m.Kube.CoreV1().Nodes(), metav1.ListOptions{})
}

// volume returns the claim's PersistentVolume, or nil.
func (m *mover) volume(ctx context.Context) (*corev1.PersistentVolume, error) {
	if m.claim.Spec.VolumeName == "" {
		return nil, nil
	}
	return store.Live(ctx, "PersistentVolume", m.Kube.CoreV1().PersistentVolumes(), m.claim.Spec.VolumeName)
}

// placeOfNode returns the place of a node. Its node is empty if there is no such node.
func (m *mover) placeOfNode(ctx context.Context, name string) (place, error) {
	if target(name) == "" {
		return place{}, nil
	}
	node, err := store.Live(ctx, "node", m.Kube.CoreV1().Nodes(), name)
	if node == nil {
		return place{}, err
	}
	return placeOf(node), nil
}

func placeOf(node *corev1.Node) place {
	if offloadingv1beta1.IsVirtual(node) {
		return place{cluster: node.Labels[corev1beta1.RemoteClusterIDLabel], node: node.Name}
	}
	return place{node: node.Name}
}

// placeOfVolume returns the place of a volume, with a node that can reach it: the one of the first pod
// if that still can.
func (m *mover) placeOfVolume(ctx context.Context, volume *corev1.PersistentVolume) (place, error) {
	out := place{cluster: volume.Labels[corev1beta1.RemoteClusterIDLabel]}
	nodes, err := m.nodes(ctx)
	if err != nil {
		return out, err
	}
	var reaches *nodeaffinity.NodeSelector
	if a := volume.Spec.NodeAffinity; a != nil && a.Required != nil {
		if reaches, err = nodeaffinity.NewNodeSelector(a.Required); err != nil {
			return out, fmt.Errorf("reading the affinity of PersistentVolume %s: %w", volume.Name, err)
		}
	}
	for _, node := range nodes {
		if placeOf(node).cluster == out.cluster && report.NodeReady(node) && (reaches == nil || reaches.Match(node)) && (out.node == "" || node.Name == m.claim.Annotations[report.SelectedNode]) {
			out.node = node.Name
		}
	}
	if out.node == "" {
		return out, fmt.Errorf("the data is in %s, and no node that is Ready reaches it: PersistentVolume %s has the affinity", out, volume.Name)
	}
	return out, nil
}

// movable returns an error if the claim, or its namespace, or the target is of a kind that is not
// moved.
func (m *mover) movable(ctx context.Context) error {
	spec := m.claim.Spec
	switch {
	case ptr.Deref(spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return fmt.Errorf("PersistentVolumeClaim %s has volumeMode %s: only Filesystem can be moved", m.Claim, *spec.VolumeMode)
	case spec.VolumeName != "pvc-"+string(m.claim.UID):
		return fmt.Errorf("PersistentVolumeClaim %s is bound to the volume of an earlier claim (%s), which cannot be moved", m.Claim, spec.VolumeName)
	case spec.DataSource != nil || spec.DataSourceRef != nil:
		return fmt.Errorf("PersistentVolumeClaim %s has a data source: its volume in another cluster would be filled from there, and cannot be moved", m.Claim)
	case slices.ContainsFunc(m.claim.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" }):
		return fmt.Errorf("PersistentVolumeClaim %s is an ephemeral volume, which ends with its pod", m.Claim)
	case m.claim.DeletionTimestamp != nil:
		return fmt.Errorf("PersistentVolumeClaim %s is being deleted", m.Claim)
	case m.claim.Annotations[report.SelectedNode] == m.Node:
		return fmt.Errorf("annotation %s of PersistentVolumeClaim %s is %s already, and its data is in %s: correct the annotation to a node there", report.SelectedNode, m.Claim, m.Node, m.from)
	}
	ns, err := m.Kube.CoreV1().Namespaces().Get(ctx, m.Namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading namespace %s: %w", m.Namespace, err)
	}
	if ns.Labels[offloadingv1beta1.SchedulingEnabledLabel] != "true" {
		return fmt.Errorf("namespace %s is not offloaded: %s offload namespace %s", m.Namespace, m.Program, m.Namespace)
	}
	if m.to.cluster == "" {
		return nil
	}
	vn, err := store.Live(ctx, "VirtualNode", m.Liqo.OffloadingV1beta1().VirtualNodes(corev1beta1.TenantNamespace(m.to.cluster)), m.Node)
	if err != nil || vn != nil && len(vn.Spec.StorageClasses) > 0 {
		return err
	}
	return fmt.Errorf("VirtualNode %s offers no storage class (spec.storageClasses): choose another node", m.Node)
}

// unused returns an error if a pod uses the claim, but the pods of the move.
func (m *mover) unused(ctx context.Context) error {
	pods, err := store.Find[*corev1.Pod](ctx, "pod", m.Kube.CoreV1().Pods(m.Namespace), metav1.ListOptions{})
	if err != nil {
		return err
	}
	var users []string
	for _, pod := range pods {
		uses := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == m.Claim
		})
		if uses && !offloadingv1beta1.Ended(pod.Status.Phase) && pod.Labels[moveLabel] != string(m.claim.UID) {
			users = append(users, pod.Name)
		}
	}
	if len(users) > 0 {
		return fmt.Errorf("PersistentVolumeClaim %s is in use: scale its workload down, or delete the pods, and run the command again; pods: %s", m.Claim, strings.Join(users, ", "))
	}
	return nil
}

// fenced returns an error if a pod that uses the claim could be created.
func (m *mover) fenced(ctx context.Context) error {
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, GenerateName: "liqod-move-probe-"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "probe", Image: m.Image}},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: m.source(m.Claim, true)}},
		},
	}
	_, err := m.Kube.CoreV1().Pods(m.Namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return errors.New("liqod's webhook would let pods use the claim during the move: is it of this version, and does it serve this namespace?")
	case !apierrors.HasStatusCause(err, offloadingv1beta1.CauseMoving):
		return fmt.Errorf("trying if pods are kept from using the claim: %w", err)
	}
	return nil
}

// annotate changes annotations of the claim, if may returns nil for the claim as it is at that time.
func (m *mover) annotate(ctx context.Context, annotations map[string]any, may func() error) error {
	return m.until(ctx, func(ctx context.Context) (string, bool, error) {
		if err := m.read(ctx); err != nil {
			return "", false, err
		}
		if may != nil {
			if err := may(); err != nil {
				return "", false, err
			}
		}
		claim, err := store.Merge(ctx, "PersistentVolumeClaim", m.Kube.CoreV1().PersistentVolumeClaims(m.Namespace), fieldManager, m.claim,
			store.Patch{"metadata": store.Patch{"resourceVersion": m.claim.ResourceVersion, "annotations": annotations}})
		if apierrors.IsConflict(err) {
			return "", false, nil // it has changed meanwhile
		}
		if err != nil {
			return "", false, err
		}
		m.claim = claim
		return "", true, nil
	})
}

// exchangeVolumes deletes the PersistentVolume of the earlier place, and waits until the claim is
// bound to the one of the new place, which liqod then creates. The data is in neither of them.
func (m *mover) exchangeVolumes(ctx context.Context) error {
	return m.until(ctx, func(ctx context.Context) (string, bool, error) {
		volume, err := m.volume(ctx)
		if err != nil {
			return "", false, err
		}
		if volume != nil && volume.Labels[corev1beta1.RemoteClusterIDLabel] != m.to.cluster {
			return "replacing the PersistentVolume", false, m.removeVolume(ctx, volume)
		}
		if err := m.read(ctx); err != nil {
			return "", false, err
		}
		done := volume != nil && volume.DeletionTimestamp == nil && volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == m.claim.UID && m.claim.Status.Phase == corev1.ClaimBound
		return "waiting for the new PersistentVolume", done, nil
	})
}

// removeVolume deletes a PersistentVolume that is bound, which Kubernetes alone would only mark.
func (m *mover) removeVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	volumes := m.Kube.CoreV1().PersistentVolumes()
	if volume.DeletionTimestamp == nil {
		return store.Delete(ctx, "PersistentVolume", volumes, volume) // what is left of it is read next
	}
	_, err := store.SetFinalizer(ctx, volumes, volume, volumeProtection, false, fieldManager)
	return store.IgnoreGone(err)
}
