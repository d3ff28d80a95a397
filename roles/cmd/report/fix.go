package report

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// Words of Kubernetes, which has no reasons or fields for them: no others are read. TestWordsOfKubernetes looks for
// them in its sources.
const (
	// podSecurity names the admission of the level of a namespace in its refusals.
	podSecurity = "PodSecurity"
	// unschedulable is how a scheduler counts cordoned nodes.
	unschedulable = "node(s) were unschedulable"
)

// Words of Kubernetes with names in them.
var (
	// missingObject is how kubelets report a ConfigMap or Secret that a pod refers to. The name becomes
	// part of a command, and the provider has written it: only the characters of names are accepted.
	missingObject = regexp.MustCompile(`(?i)\b(configmap|secret) "(?:[a-z0-9-]+/)?([a-z0-9][a-z0-9.-]*)" not found`)
	// user is how API servers name the user of a forbidden request.
	user = regexp.MustCompile(`User "([^"]+)"`)
)

// podFix returns what to do about a pod that is not ready.
func (c *checker) podFix(pod placedPod) string {
	kubectl := "kubectl -n " + pod.Namespace
	switch pod.verdict.state {
	case podUnschedulable:
		return uncordoned(pod.verdict.message, fmt.Sprintf("In cluster %s:\nkubectl get nodes\nkubectl uncordon NODE\nlets a node that is cordoned there get pods again.", pod.at.peer), " Or, in this cluster:\n",
			fmt.Sprintf("%s\nLower its requests, or change its node selector, affinity or topology spread; or cluster %s gets nodes that fit.", edited(pod.Pod), pod.at.peer))
	case podRefused:
		return c.withArguments(pod, reasons.Entry(kindPod, refusal(pod.verdict)).Fix, reasons.Entry(kindPod, "*refused").Fix)
	case podWaiting:
		if pod.verdict.pvc != "" {
			return c.withArguments(pod, reasons.Entry(kindClaim, pod.verdict.reason).Fix, reasons.Entry(kindClaim, "*").Fix)
		}
		if fix := c.waitingFix(pod); fix != "" {
			return fix
		}
		return c.withArguments(pod, reasons.Entry(kindPod, pod.verdict.reason).Fix, reasons.Entry(kindPod, "*").Fix)
	}
	if m := missingObject.FindStringSubmatch(pod.verdict.message); m != nil {
		kind := strings.ToLower(m[1])
		return fmt.Sprintf("%s get %s %s\nIf it is missing in this cluster, create it:\n%s create %s %s --from-literal=KEY=VALUE\nIf it exists, its annotations or offloading.reflection exclude it from reflection (docs/reflection.md).",
			kubectl, kind, m[2], kubectl, strings.ReplaceAll(kind, "secret", "secret generic"), m[2])
	}
	ends := []string{reasons.CrashLoopBackOff, "Error", reasons.OOMKilled, reasons.StartError, reasons.ContainerCannotRun, reasons.RunContainerError}
	if fix := endedFix(pod.Pod, edited(pod.Pod)); fix != "" && slices.Contains(ends, pod.verdict.reason) {
		return fix
	}
	return c.withArguments(pod, reasons.Entry(kindContainer, pod.verdict.reason).Fix, reasons.Entry(kindPod, pod.verdict.reason).Fix, reasons.Entry(kindPod, "*").Fix)
}

// withArguments returns the first of several fixes that is not empty, with its arguments.
func (c *checker) withArguments(pod placedPod, fixes ...string) string {
	return Expanded(cmp.Or(fixes...), c.podArguments(pod))
}

// podArguments are the arguments of the fixes of pods.
func (c *checker) podArguments(pod placedPod) map[string]string {
	claim := cmp.Or(c.claimNamed(pod.Namespace, pod.verdict.pvc), &corev1.PersistentVolumeClaim{})
	_, storage := c.withoutStorage(pod.Pod)
	return map[string]string{
		"program":       c.Program,
		"peer":          pod.at.peer,
		"namespace":     pod.Namespace,
		"name":          pod.Name,
		"claim":         pod.verdict.pvc,
		"edit":          edited(pod.Pod),
		"image":         imageEdited(pod.Pod), // the image is among the few fields that a pod may change
		"quotas":        c.quotasFix(pod),
		"ownNode":       c.ownNodeFix(pod.Pod),
		"storage":       storage,
		"data":          c.dataFix(claim),
		"quotasOfClaim": c.quotasOfClaim(pod),
	}
}

// uncordoned is about pods that no node takes: what people do about cordoned nodes, and the change of the pod if
// the scheduler counts other nodes, too. Its next sentence is about preemption.
func uncordoned(message, uncordon, or, change string) string {
	message, _, _ = strings.Cut(message, ". ")
	switch others := strings.Contains(strings.ReplaceAll(message, " "+unschedulable+", ", ", "), ", "); {
	case !strings.Contains(message, unschedulable):
		return change
	case others:
		return uncordon + or + change
	}
	return uncordon
}

// endedFix is about a pod of which a container has ended, or cannot start. It is empty if the pod has none.
// The log is that of the container before, unless no container has started since.
func endedFix(pod *corev1.Pod, edit string) string {
	c := failedOf(pod)
	if c == nil || len(validation.IsDNS1123Label(c.Name)) > 0 { // the provider has written the name
		return ""
	}
	last := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	starting := c.State.Waiting != nil && c.State.Waiting.Reason == reasons.RunContainerError
	switch {
	case starting, last != nil && (last.Reason == reasons.StartError || last.Reason == reasons.ContainerCannotRun):
		return fmt.Sprintf("%s\nCorrect its command, or what the message names: container %s did not start, and has no log.", edit, c.Name)
	case last == nil:
		return ""
	}
	logs := fmt.Sprintf("kubectl -n %s logs %s -c %s", pod.Namespace, pod.Name, c.Name)
	if c.State.Terminated == nil {
		logs += " --previous"
	}
	if last.Reason == reasons.OOMKilled {
		return fmt.Sprintf("%s\nRaise the memory limit of container %s. Its log may show what takes the memory:\n%s", edit, c.Name, logs)
	}
	return logs
}

// refusal is the reason why a provider does not accept a pod. Pod security gives none of its own.
func refusal(v podVerdict) string {
	if v.reason == offloadingv1beta1.ReasonPodRefused && strings.Contains(v.message, podSecurity) {
		return "*PodSecurity"
	}
	return v.reason
}

// waitingFix is about pods that wait for a node, or for room in a provider. It is empty for the reasons
// whose fix is the same for each pod.
func (c *checker) waitingFix(pod placedPod) string {
	switch pod.verdict.reason {
	case offloadingv1beta1.ReasonQuotaCordoned:
		again := fmt.Sprintf("kubectl cordon %s\nand delete pods that may run on other nodes: their controller creates them there.", pod.Spec.NodeName)
		if edit := c.editQuotas(pod.at.peer); edit != "" {
			return strings.TrimSpace(edit) + "\nand set spec.cordoned to false. Or:\n" + again
		}
		return again
	case offloadingv1beta1.ReasonOffloadingBackOff:
		if c.offloadingOf(pod.Namespace) == nil && c.ofNode(pod.Pod) {
			return fmt.Sprintf("kubectl -n %s get pod %s -o yaml\nshows what has placed it on virtual node %s: keep the pod off virtual nodes. It works on a node of this cluster itself.", pod.Namespace, pod.Name, pod.Spec.NodeName)
		}
		if c.offloadingOf(pod.Namespace) == nil {
			return fmt.Sprintf("%s offload namespace %s\nor keep the pod off virtual nodes.", c.Program, pod.Namespace)
		}
	case corev1.PodReasonSchedulerError:
		if claims := slices.DeleteFunc(claimsOf(pod.Pod), func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }); len(claims) > 0 {
			return fmt.Sprintf("kubectl -n %s describe pvc %s\nIts events say why there is no volume.", pod.Namespace, strings.Join(claims, " "))
		}
	case reasons.Unschedulable:
		if c.asksInVain(pod.Pod) {
			return fmt.Sprintf("%s offload namespace %s --pod-offloading-strategy LocalAndRemote\n%s Or remove what selects virtual nodes from it.", c.Program, pod.Namespace, madeAgain(pod.Pod))
		}
		if fix := c.closedFix(pod.Pod); fix != "" {
			return fix
		}
		if lacks := c.lacking(pod.Pod); lacks != "" {
			return fmt.Sprintf("%s offer list\nshows what is offered. %s. To ask for more: docs/negotiation.md#asking. Or:\n%s\nLower its requests.", c.Program, lacks, edited(pod.Pod))
		}
		return uncordoned(pod.verdict.message, "kubectl get nodes\nkubectl uncordon NODE\nlets a node that is cordoned get pods again.", " Or:\n",
			fmt.Sprintf("%s\nChange its requests, node selector or affinity. The free room:\nkubectl describe nodes", edited(pod.Pod)))
	}
	return ""
}

// ofNode reports whether a pod belongs to nodes of this cluster, such as one of a provisioner of volumes: its
// namespaceStatus is not for providers.
func (c *checker) ofNode(pod *corev1.Pod) bool {
	return pod.Spec.HostNetwork || strings.HasPrefix(pod.Namespace, "kube-") || pod.Namespace == c.Namespace ||
		slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
}

// quotasOfClaim is about a claim whose volume a provider makes.
func (c *checker) quotasOfClaim(pod placedPod) string {
	node := pod.Spec.NodeName
	if pvc := c.claimNamed(pod.Namespace, pod.verdict.pvc); node == "" && pvc != nil {
		node = pvc.Annotations[SelectedNode]
	}
	peer := c.providerOf(node)
	if peer == "" {
		return ""
	}
	return fmt.Sprintf(" Its volume is made in cluster %s, whose quotas and classes apply:\n%s status %s", peer, c.Program, peer)
}

// ownNodeFix is about a pod on a virtual node whose claim needs a node of this cluster. One that asks for virtual
// nodes itself would come there again.
func (c *checker) ownNodeFix(pod *corev1.Pod) string {
	o := c.offloadingOf(pod.Namespace)
	remote := o != nil && o.Spec.PodOffloadingStrategy == offloadingv1beta1.PodsRemote
	asks := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector}}
	if class := pod.Spec.RuntimeClassName; !remote || class != nil && *class == offloadingv1beta1.RuntimeClassName {
		asks = pod // else the webhook has added the affinity
	}
	made := madeAgain(pod) + " The webhook of liqod keeps the new one on nodes of this cluster."
	switch {
	case rules.AsksForVirtualNodes(asks):
		return fmt.Sprintf("%s\nRemove what asks for virtual nodes: the nodeSelector or affinity with the key %s, or the runtime class %s. "+
			"Or give it a claim of a class of liqod, whose volume is made where the pod runs:\nkubectl get storageclasses", edited(pod), offloadingv1beta1.TypeLabel, offloadingv1beta1.RuntimeClassName)
	case remote:
		return fmt.Sprintf("%s offload namespace %s --pod-offloading-strategy LocalAndRemote\n%s", c.Program, pod.Namespace, made)
	}
	return made
}

// madeAgain is how a pod is created anew.
func madeAgain(pod *corev1.Pod) string {
	if metav1.GetControllerOf(pod) == nil {
		return fmt.Sprintf("kubectl -n %s delete pod %s\nand create it again from its manifest: no controller does it.", pod.Namespace, pod.Name)
	}
	return fmt.Sprintf("kubectl -n %s delete pod %s\nIts controller creates it again.", pod.Namespace, pod.Name)
}

// dataFix is about a pod that waits for the provider that has its data.
func (c *checker) dataFix(claim *corev1.PersistentVolumeClaim) string {
	peer := c.dataOf(claim)
	nodes := c.virtualNodes(peer)
	if len(nodes) == 0 {
		return fmt.Sprintf("%s storage list\nshows where the data is. The pod starts once this cluster uses cluster %s again:\n%s peer --token TOKEN", c.Program, peer, c.Program)
	}
	for _, vn := range nodes {
		if node := c.node(vn.Name); vn.DeletionTimestamp == nil && node != nil && nodeState(node) == OK && node.Spec.Unschedulable {
			return fmt.Sprintf("kubectl uncordon %s\nlets the pod go to its data.", vn.Name)
		}
	}
	return fmt.Sprintf("%s status %s\nshows what keeps cluster %s away.", c.Program, peer, peer)
}

// lacking says what the virtual nodes that a pod asks for lack. It is empty for a pod that admits other nodes, and if
// one has the room.
func (c *checker) lacking(pod *corev1.Pod) string {
	if !rules.AsksForVirtualNodes(pod) {
		return ""
	}
	var out []string
	asked := Room{Used: corev1.ResourceList{}}
	asked.use(pod)
	for i := range c.VirtualNodes {
		node := c.node(c.VirtualNodes[i].Name)
		if node == nil || !admits(pod, node) {
			continue
		}
		room, short := virtualNode(c.Snapshot, &c.VirtualNodes[i]), ""
		for _, name := range slices.Sorted(maps.Keys(asked.Used)) {
			want, has := asked.Used[name], room.Capacity[name]
			used := room.Used[name]
			switch left := has.DeepCopy(); {
			case want.IsZero():
				continue
			case has.IsZero():
				short += fmt.Sprintf(", no %s in its offer", name)
			default:
				if left.Sub(used); want.Cmp(left) > 0 {
					short += fmt.Sprintf(", %s %s left of %s and %s asked", name, left.String(), has.String(), want.String())
				}
			}
		}
		if short == "" {
			return ""
		}
		out = append(out, fmt.Sprintf("Virtual node %s is full: %s", node.Name, short[2:]))
	}
	return strings.Join(out, ". ")
}

// closedFix is about a pod whose affinity admits virtual nodes that get no more pods, and no
// other virtual node. It is empty for other pods.
func (c *checker) closedFix(pod *corev1.Pod) string {
	var cordoned, removed []string
	for _, vn := range c.VirtualNodes {
		switch node := c.node(vn.Name); {
		case node == nil || !admits(pod, node):
		case vn.DeletionTimestamp != nil:
			removed = append(removed, vn.Name)
		case node.Spec.Unschedulable:
			cordoned = append(cordoned, vn.Name)
		default:
			return ""
		}
	}
	switch {
	case len(cordoned) > 0:
		return fmt.Sprintf("kubectl uncordon %s\nA virtual node that is cordoned gets no more pods.", strings.Join(cordoned, " "))
	case len(removed) > 0:
		return fmt.Sprintf("nothing, if the pods may wait: virtual node %s is being removed and gets no more pods. To use another provider:\n%s peer --token TOKEN", strings.Join(removed, ", "), c.Program)
	}
	return ""
}

// quotasFix is how the administrators of a provider let this cluster use more. The controller there keeps
// the Quota of an offer equal to the offer, so only another Quota beside it gives more.
func (c *checker) quotasFix(pod placedPod) string {
	offered := slices.ContainsFunc(c.VirtualNodes, func(vn offloadingv1beta1.VirtualNode) bool {
		return vn.Name == pod.Spec.NodeName && vn.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer
	})
	if !offered || c.ClusterID == "" {
		return c.editQuotas(pod.at.peer)
	}
	return fmt.Sprintf("\nIn cluster %s:\n"+`kubectl apply -f - <<<'{"apiVersion":"%s","kind":"Quota","metadata":{"name":"more","namespace":"%s"},`+
		`"spec":{"resources":{"cpu":"CPU","memory":"MEMORY","pods":"PODS"}}}'`+"\nThis Quota counts in addition to that of the offer.",
		pod.at.peer, offloadingv1beta1.SchemeGroupVersion, corev1beta1.TenantNamespace(c.ClusterID))
}

// editQuotas is how the administrators of a provider change Quotas of this cluster.
func (c *checker) editQuotas(provider string) string {
	if c.ClusterID == "" {
		return ""
	}
	return fmt.Sprintf("\nIn cluster %s:\nkubectl -n %s edit quotas.offloading.liqo.io", provider, corev1beta1.TenantNamespace(c.ClusterID))
}

// edited is the command that changes a pod that is not ready: the template that it has been made
// from, if there is one. A pod may not change: it is made again.
func edited(pod *corev1.Pod) string {
	if metav1.GetControllerOf(pod) == nil {
		kubectl, file := "kubectl -n "+pod.Namespace, pod.Name+".yaml"
		return fmt.Sprintf(`%s get pod %s -o yaml >%s && ${EDITOR:-vi} %s && %s replace --force -f %s`, kubectl, pod.Name, file, file, kubectl, file)
	}
	return imageEdited(pod)
}

// imageEdited is the command that changes the image of a pod, or of the template that it has been made from.
// The template of a Job may not change: the Job is made again.
func imageEdited(pod *corev1.Pod) string {
	kind, name := madeBy(pod)
	if kind == "job" {
		return fmt.Sprintf("kubectl -n %s delete job %s\nand create it again: the template of a Job cannot change.", pod.Namespace, name)
	}
	return fmt.Sprintf("kubectl -n %s edit %s %s", pod.Namespace, kind, name)
}

// madeBy returns kind and name of the object that people change to change a pod: the Deployment or other
// controller that has made it, or the pod itself. API servers do not check what a pod says of its owner.
func madeBy(pod *corev1.Pod) (kind, name string) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || offloadingv1beta1.Command("%s %s", strings.ToLower(owner.Kind), owner.Name) == "" {
		return "pod", pod.Name
	}
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if deployment, found := strings.CutSuffix(owner.Name, "-"+hash); owner.Kind == "ReplicaSet" && hash != "" && found {
		return "deployment", deployment
	}
	return strings.ToLower(owner.Kind), owner.Name
}

// peerFix says what to do about a condition of a peer, whose reason may be that of its Connection.
func (c *checker) peerFix(fc *corev1beta1.ForeignCluster, condition *metav1.Condition) string {
	kind := peerKind(condition.Type)
	fix := cmp.Or(reasons.Entry(kind, condition.Reason).Fix, reasons.Entry(kind, "*"+c.cause(fc, condition)).Fix, reasons.Entry(kind, "*"+condition.Type).Fix, reasons.Entry(kind, "*").Fix)
	return Expanded(fix, c.peerArguments(fc, condition.Type))
}

// peerKind is the kind of reasons.yaml with the reasons of a condition of a peer.
func peerKind(condition string) string {
	if condition == corev1beta1.ConditionNetwork {
		return kindConnection
	}
	return kindPeer
}

// cause is the name of a fix that depends on more than a reason. Capacity is not used because a person here or in
// the peer has to approve an offer, or because there is none.
func (c *checker) cause(fc *corev1beta1.ForeignCluster, condition *metav1.Condition) string {
	incoming, outgoing := condition.Type == corev1beta1.ConditionIncomingPeering, condition.Type == corev1beta1.ConditionOutgoingPeering
	approval, refused := condition.Reason == sharingv1alpha1.ReasonApprovalRequired, condition.Reason == sharingv1alpha1.ReasonNotAllowed
	switch {
	case (incoming || outgoing) && c.undecided(fc.Spec.ClusterID, condition.Type) != "":
		return "offers"
	case incoming && !approval && !refused && fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo:
		return condition.Type + " off"
	case outgoing && approval && c.ClusterID == "": // the tenant namespace there is not known
		return condition.Type
	}
	return condition.Type + " " + condition.Reason
}

// peerArguments are the arguments of the fixes of peers.
func (c *checker) peerArguments(fc *corev1beta1.ForeignCluster, condition string) map[string]string {
	peer := fc.Spec.ClusterID
	return map[string]string{
		"program":     c.Program,
		"peer":        peer,
		"name":        fc.Name,
		"liqod":       c.Namespace,
		"tenant":      corev1beta1.TenantNamespace(peer),
		"tenantThere": corev1beta1.TenantNamespace(c.ClusterID),
		"token":       c.tokenFix(peer, ""),
		"tokenOfURL":  c.tokenFix(peer, " --url URL"),
		"apiserver":   apiServerFix(fc),
		"undecided":   c.undecided(peer, condition),
		"outgoingNo":  enabled(peer, "outgoing", corev1beta1.PeeringNo),
		"incomingNo":  enabled(peer, "incoming", corev1beta1.PeeringNo),
		"incomingYes": enabled(peer, "incoming", corev1beta1.PeeringYes),
	}
}

// undecided has a command for each offer that a person in this cluster has to decide about, from the peer or to it.
func (c *checker) undecided(peer, direction string) (approve string) {
	tenant := corev1beta1.TenantNamespace(peer)
	for _, o := range c.Offers {
		waits := o.Spec.ProviderClusterID == peer && o.Status.Reason == sharingv1alpha1.ReasonAcceptanceRequired
		if direction == corev1beta1.ConditionIncomingPeering {
			waits = o.Spec.ConsumerClusterID == peer && !o.Spec.Approved
		}
		if waits && o.Namespace == tenant && o.Spec.WithdrawalTimestamp == nil {
			approve += fmt.Sprintf("\n%s offer approve %s -n %s", c.Program, o.Name, tenant)
		}
	}
	return approve
}

// enabled is the command that switches one direction of a peering.
func enabled(peer, direction string, to corev1beta1.PeeringEnabled) string {
	return fmt.Sprintf(`kubectl patch foreigncluster %s --type=merge -p '{"spec":{"%sPeeringEnabled":"%s"}}'`, peer, direction, to)
}

// plainURL is a URL that can stand in a command as it is: a peer has written it.
var plainURL = regexp.MustCompile(`^https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?$`)

// apiServerFix is about a peer whose API server does not answer.
func apiServerFix(fc *corev1beta1.ForeignCluster) string {
	if !plainURL.MatchString(fc.Status.APIServerURL) {
		return fmt.Sprintf("see whether %s can be reached from this cluster's pods and whether that cluster is up; what runs there goes on running", fc.Status.APIServerURL)
	}
	return fmt.Sprintf("curl --insecure --globoff --max-time 10 %s/readyz\nIf it does not answer, cluster %s is down, or a firewall is between. If it answers, this cluster's pods do not reach it: docs/networking.md#ports-and-reachability. "+
		"What runs there goes on running.", strings.TrimSuffix(fc.Status.APIServerURL, "/"), fc.Spec.ClusterID)
}

// tokenFix is how this cluster gets another identity in a peer. flags are further ones of token create.
func (c *checker) tokenFix(peer, flags string) string {
	if c.ClusterID != "" {
		flags += " --for " + c.ClusterID
	}
	return c.enrolFix("cluster "+peer, flags)
}

// mapFix is about namespaces that a provider does not give, or still has.
func mapFix(m *offloadingv1beta1.NamespaceMap, reason string) string {
	if reason != offloadingv1beta1.ReasonTerminating {
		return Expanded(cmp.Or(reasons.Entry(kindMap, reason).Fix, reasons.Entry(kindMap, "*").Fix), map[string]string{"namespace": m.Namespace, "name": m.Name})
	}
	var claims, deletes []string
	for _, name := range keptIn(m) {
		if len(claims) == mostNames {
			break
		}
		claims = append(claims, fmt.Sprintf("kubectl -n %s get pvc", name))
		deletes = append(deletes, fmt.Sprintf("kubectl annotate namespace %s %s=%s", name, offloadingv1beta1.DeleteVolumesAnnotation, name))
	}
	if len(claims) == 0 {
		return fmt.Sprintf("nothing to do: cluster %s is deleting the namespaces", m.Name)
	}
	return fmt.Sprintf("In cluster %s:\n%s\nshows what a namespace is kept for. If the data is to stay, there is nothing to do. To delete it with its namespace:\n%s",
		m.Name, strings.Join(claims, "\n"), strings.Join(deletes, "\n"))
}
