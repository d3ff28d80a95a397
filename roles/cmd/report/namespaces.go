package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

func (c *checker) offloadings() {
	if c.unread(ReadOffloadings) {
		return
	}
	c.noProvider()
	for i := range c.Offloadings {
		c.offloading(&c.Offloadings[i])
		if c.Only == "" { // else they are printed apart
			c.application(c.Offloadings[i].Namespace)
		} else if text, fix := c.older(&c.Offloadings[i]); text != "" { // only then all pods were read
			c.Add(idOlder, Warning, "pods of namespace "+c.Only, text, fix)
		}
	}
	c.asking()
	c.refused()
}

// asking adds a warning about a label that alone lets nothing go to providers.
func (c *checker) asking() {
	if c.Only == "" || len(c.Offloadings) > 0 || c.Unread[ReadOffloadings] != nil {
		return
	}
	who := ""
	if c.Labels[offloadingv1beta1.SchedulingEnabledLabel] != "" {
		who = "it"
	} else if i := slices.IndexFunc(c.Pods, func(p corev1.Pod) bool { return p.Labels[offloadingv1beta1.SchedulingEnabledLabel] != "" }); i >= 0 {
		who = "pod " + c.Pods[i].Name
	}
	if who != "" {
		c.Add(idNamespace, Warning, "namespace "+c.Only, fmt.Sprintf("%s has the label %s, which lets no pod go to virtual nodes: the namespace is not offloaded", who, offloadingv1beta1.SchedulingEnabledLabel),
			fmt.Sprintf("%s offload namespace %s", c.Program, c.Only))
	}
}

// refused adds a warning for each object that a provider refuses. The Nodes of the virtual nodes say which. Who may
// not read Nodes sees the events of the last hour.
func (c *checker) refused() {
	warn := func(o offloadingv1beta1.RefusedObject, by string) {
		kubectl := "kubectl -n " + o.Namespace
		c.Add(idRefusedObject, Warning, fmt.Sprintf("%s %s of namespace %s", o.Kind, o.Name, o.Namespace), o.Cause,
			fmt.Sprintf("%s edit %s %s\nChange what the message names; or the administrators of %s allow it. If it is not needed there:\n%s annotate %s %s %s=true",
				kubectl, o.Kind, o.Name, by, kubectl, o.Kind, o.Name, offloadingv1beta1.SkipReflectionAnnotation))
	}
	for i := range c.Nodes {
		said := nodeCondition(&c.Nodes[i], offloadingv1beta1.ReasonReflectionRefused)
		if said.Status != corev1.ConditionTrue {
			continue
		}
		c.Peer = c.Nodes[i].Labels[corev1beta1.RemoteClusterIDLabel]
		objects, more := offloadingv1beta1.RefusedIn(said.Message)
		for _, o := range objects {
			if c.Only == "" || c.Only == o.Namespace {
				warn(o, "cluster "+c.Peer)
			}
		}
		if more > 0 {
			c.Add(idRefusedObject, Warning, "further objects", fmt.Sprintf("it refuses %d more", more), "kubectl get events -A --field-selector reason="+offloadingv1beta1.ReasonFailedReflection)
		}
	}
	c.Peer = ""
	if c.Unread[ReadNodes] == nil {
		return
	}
	told := map[string]bool{}
	for _, e := range slices.SortedFunc(slices.Values(c.Events), func(a, b corev1.Event) int { return EventTime(&b).Compare(EventTime(&a)) }) {
		of := e.InvolvedObject // API servers do not check its kind and name
		object := offloadingv1beta1.Command("%s %s", strings.ToLower(of.Kind), of.Name)
		if age := c.Taken.Sub(EventTime(&e)); e.Reason == offloadingv1beta1.ReasonFailedReflection && age < recent && !told[object] && object != "" {
			told[object] = true
			warn(offloadingv1beta1.RefusedObject{Kind: strings.ToLower(of.Kind), Namespace: c.Only, Name: of.Name, Cause: fmt.Sprintf("%s (an event of %s ago)", e.Message, duration.HumanDuration(age))}, "that cluster")
		}
	}
}

// noProvider adds one finding for several namespaces that are offloaded to nowhere, because this
// cluster has no peer.
func (c *checker) noProvider() {
	if len(c.VirtualNodes)+len(c.ForeignClusters) > 0 || c.Unread[ReadVirtualNodes] != nil || c.Unread[ReadForeignClusters] != nil || c.stale() {
		return
	}
	nowhere := where(c.Offloadings, func(o *offloadingv1beta1.NamespaceOffloading) bool {
		ready := meta.FindStatusCondition(o.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
		return ready != nil && ready.Reason == string(offloadingv1beta1.PhaseNoClusterSelected) && o.DeletionTimestamp == nil
	})
	if len(nowhere) > 1 {
		c.Add(idNoProvider, Problem, "providers", fmt.Sprintf("this cluster uses no provider, and %d namespaces are offloaded", len(nowhere)), c.enrolFix("the cluster that is to be the provider", ""))
	}
}

func (c *checker) offloading(o *offloadingv1beta1.NamespaceOffloading) {
	subject := "namespace " + o.Namespace
	ready := meta.FindStatusCondition(o.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
	switch {
	case o.DeletionTimestamp != nil:
		c.Add(idNamespace, Warning, subject, "it is being taken back from the providers", "")
	case ready == nil:
		c.unprocessed(idNamespace, subject, "liqod's controller has not processed its NamespaceOffloading yet")
	case ready.Reason == string(offloadingv1beta1.PhaseNoClusterSelected) && !c.unread(ReadVirtualNodes):
		said := *ready
		text, fix := c.noneSelected(o)
		if text != "" {
			said.Message = text
		}
		c.condition(Finding{ID: idNamespace, Subject: subject, Fix: fix}, reasons.Entry(kindOffloading, ready.Reason), o.Generation, &said)
		c.withoutProvider()
	default:
		said := *ready
		if text := refusedBy(o); text != "" && ready.Status == metav1.ConditionFalse {
			said.Message = text
		}
		c.condition(Finding{ID: idNamespace, Subject: subject, Fix: c.offloadingFix(o, ready.Reason)}, reasons.Entry(kindOffloading, ready.Reason), o.Generation, &said)
		c.refusedTwins(o.Namespace)
	}
}

// refusedBy says why providers have no twin of a namespace, the same reason once.
func refusedBy(o *offloadingv1beta1.NamespaceOffloading) string {
	var order []string
	by := map[string][]string{}
	for id, ready := range Selected(o) {
		if ready.Status == metav1.ConditionTrue {
			continue
		}
		text := strings.ReplaceAll(ready.Message, "cluster "+id, "the cluster")
		if by[text] == nil {
			order = append(order, text)
		}
		by[text] = append(by[text], id)
	}
	for i, text := range order {
		order[i] = strings.Join(by[text], ", ") + ": " + text
	}
	return strings.Join(order, "; ")
}

// refusedTwins makes what the NamespaceMaps say of a namespace a consequence of the last finding, about that namespace.
func (c *checker) refusedTwins(namespace string) {
	last := c.Findings[len(c.Findings)-1]
	if last.Level != Problem || last.Because != "" {
		return
	}
	c.follow(last.Name(), func(f *Finding) bool {
		m := c.ownMap(f.Peer)
		return f.ID == idNamespaceMap && f.Level == Problem && f.Because == "" && m != nil && m.Status.CurrentMapping[namespace].Phase == offloadingv1beta1.MappingCreationLoopBackOff
	})
}

// withoutProvider makes the last finding, about a namespace, a consequence of the reason for which
// there is no virtual node at all, if a finding about a peer gives one.
func (c *checker) withoutProvider() {
	namespace := &c.Findings[len(c.Findings)-1]
	if len(c.VirtualNodes) > 0 || namespace.Level != Problem || namespace.Because != "" {
		return
	}
	namespace.Because = c.find(func(f Finding) bool {
		return (f.ID == idIdentity || f.ID == idOutgoing || f.ID == idNoProvider) && f.Level == Problem && f.Because == ""
	})
}

func (c *checker) offloadingFix(o *offloadingv1beta1.NamespaceOffloading, reason string) string {
	fix := cmp.Or(reasons.Entry(kindOffloading, reason).Fix, reasons.Entry(kindOffloading, "*").Fix)
	return Expanded(fix, map[string]string{"program": c.Program, "namespace": o.Namespace, "renamed": c.renamed(o)})
}

// keptIn returns the namespaces of a provider that stay for their volumes.
func keptIn(m *offloadingv1beta1.NamespaceMap) (names []string) {
	for _, original := range slices.Sorted(maps.Keys(m.Status.CurrentMapping)) {
		twin := m.Status.CurrentMapping[original]
		_, wanted := m.Spec.DesiredMapping[original]
		if twin.Phase == offloadingv1beta1.MappingTerminating && twin.Message != "" && !wanted &&
			len(validation.IsDNS1123Label(twin.RemoteNamespace)) == 0 { // the provider has written it
			names = append(names, twin.RemoteNamespace)
		}
	}
	return names
}

// renamed is the command that offloads a namespace again, under another name.
func (c *checker) renamed(o *offloadingv1beta1.NamespaceOffloading) string {
	other := o.DeepCopy()
	other.Spec.NamespaceMappingStrategy, other.Spec.RemoteNamespaceName = offloadingv1beta1.SelectedName, "NAME"
	switch by := cmp.Or(o.Spec.NamespaceMappingStrategy, offloadingv1beta1.DefaultName); {
	case by != offloadingv1beta1.DefaultName: // which each provider admits
		other.Spec.NamespaceMappingStrategy, other.Spec.RemoteNamespaceName = offloadingv1beta1.DefaultName, ""
	case c.ClusterID != "":
		other.Spec.RemoteNamespaceName += "-" + c.ClusterID // the provider admits such names without a setting
	}
	return c.offloadCommand(other, selectorFlags(&o.Spec.ClusterSelector))
}

// selectorFlags is a selector as the value of --selector, and of further such flags.
func selectorFlags(selector *corev1.NodeSelector) string {
	var quoted []string
	for _, term := range terms(selector) {
		quoted = append(quoted, "'"+strings.ReplaceAll(term, "'", "")+"'")
	}
	return strings.Join(quoted, " --selector ")
}

// keptOff is how a DaemonSet is kept away from virtual nodes. A patch would replace the terms of
// one that has some.
func keptOff(ds *appsv1.DaemonSet) string {
	code := "*DaemonSet"
	if a := ds.Spec.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		code = "*DaemonSet with an affinity"
	}
	return Expanded(reasons.Entry(kindNode, code).Fix, map[string]string{"namespace": ds.Namespace, "name": ds.Name})
}

// daemonSets finds DaemonSets whose pods land on virtual nodes.
func (c *checker) daemonSets() {
	if c.unread(ReadDaemonSets) || len(c.Nodes) == 0 {
		return
	}
	found := false
	for _, ds := range c.DaemonSets {
		if node := first(c.Nodes, func(node *corev1.Node) bool { return lands(&ds, node) }); node != nil {
			found = true
			c.Add(idDaemonSets, Warning, fmt.Sprintf("%s/%s", ds.Namespace, ds.Name), fmt.Sprintf("its pods land on virtual nodes (%s), and are probably useless there", node.Name), keptOff(&ds))
		}
	}
	if !found {
		c.Add(idDaemonSets, OK, "virtual nodes", "no DaemonSet lands on them", "")
	}
}

// lands says whether the scheduler would put a pod of a DaemonSet on a node.
func lands(ds *appsv1.DaemonSet, node *corev1.Node) bool {
	spec := ds.Spec.Template.Spec
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: spec.NodeSelector, Affinity: spec.Affinity}}
	_, kept := schedulingcorev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, spec.Tolerations, lasting, false)
	return admits(pod, node) && !kept
}

// lasting picks the taints that are not about the state of a node: those DaemonSets tolerate.
func lasting(t *corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable:
		return false
	}
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// movingData adds a finding for each claim whose data moves.
func (c *checker) movingData() {
	for _, m := range c.moves() {
		level, fix := OK, ""
		if m.Stopped {
			level, fix = Warning, m.commandsOn()
		}
		c.Add(idMove, level, m.Namespace+"/"+m.Claim, "its data moves "+m.inOneLine(), fix)
	}
}

// moves returns the moves of data, by namespace and name of the claim.
func (s *Snapshot) moves() (out []Move) {
	for i := range s.Claims {
		m := s.moveOf(&s.Claims[i], "unknown")
		if m == nil {
			continue
		}
		if volume := s.volumeOf(&s.Claims[i]); volume != nil {
			m.From = Place(volume.Labels[corev1beta1.RemoteClusterIDLabel])
		}
		out = append(out, *m)
	}
	return out
}

// kept says how much data is kept without a claim, and is empty without such data.
func (s *Snapshot) kept() string {
	var of []string
	volumes := where(s.Volumes, func(v *corev1.PersistentVolume) bool { // but for those that will be deleted
		return v.Annotations[ProvisionedBy] == offloadingv1beta1.StorageProvisioner && v.Status.Phase == corev1.VolumeReleased && stays(v) && !isEmpty(v)
	})
	if n := len(volumes); n > 0 {
		of = append(of, Count(n, "volume")+" whose claim is gone")
	}
	if n := s.keptTwins(); n > 0 {
		of = append(of, Count(n, "namespace")+" that no peer offloads any more")
	}
	if len(of) == 0 {
		return ""
	}
	return fmt.Sprintf("of %s; %s storage list shows it, and how to get it back or delete it", strings.Join(of, " and "), s.Program)
}

// keptTwins counts the namespaces that this cluster keeps for peers because of their volumes.
func (s *Snapshot) keptTwins() (n int) {
	for _, m := range where(s.Maps, func(m *offloadingv1beta1.NamespaceMap) bool {
		return m.Labels[offloadingv1beta1.ReplicatedLabel] == "true"
	}) {
		n += len(keptIn(m))
	}
	return n
}
