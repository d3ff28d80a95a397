package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"regexp"
	"strings"

	"github.com/liqod/liqod/reasons"
)

// roleVKubelet is the role of the Deployments of virtual nodes.
const roleVKubelet = "vkubelet"

// roleChecks are the roles of an installation and their checks, in the order of the text.
var roleChecks = []struct {
	role string
	id   ID
}{{Controller, idController}, {Webhook, idWebhook}, {"ipam", idIPAM}, {Gateway, idGateway}, {"route", idRoute}, {roleVKubelet, idVKubelet}}

// usualHealthPort is the port of the health server unless the container has one named health.
const usualHealthPort = 8080

// HealthPort returns the port at which a pod of liqod serves its metrics.
func HealthPort(pod *corev1.Pod) int {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "health" {
				return int(p.ContainerPort)
			}
		}
	}
	return usualHealthPort
}

// leaseSlack is the accepted difference between the clocks of the holder and of this machine.
const leaseSlack = 2 * time.Second

// workload is a Deployment of a role, or a DaemonSet in the form of one.
type workload struct {
	*appsv1.Deployment
	role, kind string
}

func ofDaemonSet(d *appsv1.DaemonSet) *appsv1.Deployment {
	want := d.Status.DesiredNumberScheduled
	return &appsv1.Deployment{ObjectMeta: d.ObjectMeta, Spec: appsv1.DeploymentSpec{Replicas: &want, Selector: d.Spec.Selector, Template: d.Spec.Template},
		Status: appsv1.DeploymentStatus{Replicas: want, UpdatedReplicas: d.Status.UpdatedNumberScheduled, ReadyReplicas: d.Status.NumberReady}}
}

func (w *workload) replicasWanted() int32 { return ptr.Deref(w.Spec.Replicas, 1) }

// rolling is true until no pod of an earlier template runs.
func (w *workload) rolling() bool {
	return w.Status.UpdatedReplicas < w.replicasWanted() || w.Status.Replicas > w.replicasWanted()
}

// allRoles returns the workloads of all roles, in the order of the text.
func (s *Snapshot) allRoles() []Role {
	var all []workload
	for i := range s.Roles {
		all = append(all, workload{&s.Roles[i], s.Roles[i].Labels[ComponentLabel], "deployment"})
	}
	for i := range s.DaemonSets {
		if d := &s.DaemonSets[i]; d.Namespace == s.Namespace && d.Labels["app.kubernetes.io/name"] == "liqod" {
			all = append(all, workload{ofDaemonSet(d), d.Labels[ComponentLabel], "daemonset"})
		}
	}
	for i := range s.VKubelets {
		all = append(all, workload{&s.VKubelets[i], roleVKubelet, "deployment"})
	}
	var out []Role
	for _, known := range roleChecks {
		for _, w := range where(all, func(w *workload) bool { return w.role == known.role }) {
			out = append(out, s.judgeRole(w))
		}
	}
	return out
}

// judgeRole judges a workload.
func (s *Snapshot) judgeRole(w *workload) Role {
	out := Role{Name: w.role, Object: w.Namespace + "/" + w.Name, Level: Problem, Ready: w.Status.ReadyReplicas, Want: w.replicasWanted(),
		Version: w.Labels["app.kubernetes.io/version"], Image: image(&w.Spec.Template.Spec)}
	trouble, fails := "", failing(w.Deployment)
	if (w.role == Controller || w.role == Webhook) && s.Unread[ReadLeases] == nil {
		out.Leader, trouble = s.leading(w.role)
	}
	restarts, reason, failed := s.podsOfRole(w)
	out.Restarts = restarts
	if failed = cmp.Or(failed, fails); failed != "" {
		failed = ": " + failed
	}
	logs := fmt.Sprintf("kubectl -n %s get pods; kubectl -n %s logs %s/%s", w.Namespace, w.Namespace, w.kind, w.Name)
	out.Message, out.fix = fmt.Sprintf("%d of %s ready", out.Ready, replicas(out.Want)), w.failureFix(reason, logs)
	switch {
	case out.Want == 0 && w.kind == "daemonset":
		out.Message, out.fix = "no node takes it", fmt.Sprintf("kubectl -n %s describe daemonset/%s\nshows which nodes it selects: none with the label networking.liqo.io/route=host, which run it as a service.", w.Namespace, w.Name)
	case out.Want == 0:
		out.Message = "it is scaled to zero"
		out.fix = fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=1\nor as many replicas as the values of the chart say", w.Namespace, w.Name)
	case out.Ready == 0:
		out.Message += failed
	case trouble != "":
		out.Message += failed + ", but " + trouble
		out.fix = fmt.Sprintf("%s\nshows why. If it hangs:\nkubectl -n %s rollout restart %s/%s", logs, w.Namespace, w.kind, w.Name)
	case failed != "" && (w.rolling() || fails != ""):
		out.Message += ", but the rollout of " + out.Image + " fails" + failed
	case out.Ready < out.Want:
		out.Level, out.Message = Warning, out.Message+failed
	default:
		out.Level, out.fix = OK, ""
		if out.Leader != "" {
			out.Message += "; " + out.Leader + " leads"
		}
	}
	return out
}

// failureFix is about pods of a role that do not start or run; logs is what helps with most of them. The
// controller keeps the template of a vkubelet as it is.
func (w *workload) failureFix(reason, logs string) string {
	undo := fmt.Sprintf("kubectl -n %s rollout undo %s/%s\ngoes back to the template before", w.Namespace, w.kind, w.Name)
	switch {
	case reason == reasons.NodeNotReady:
		return "kubectl get nodes; kubectl describe nodes\nshow why. The pod runs again with its node; Kubernetes replaces the pods of Deployments on other nodes after some minutes."
	case w.role == roleVKubelet:
		return logs
	case slices.Contains([]string{reasons.ErrImagePull, reasons.ImagePullBackOff, reasons.InvalidImageName, reasons.ErrImageNeverPull}, reason): // a node cannot get it
		return undo + ", if there was one. Else correct image.repository, image.tag or image.digest in the values of the chart, and upgrade its release."
	case w.rolling():
		return logs + "\nshows why.\n" + undo + "."
	}
	return logs
}

// podsOfRole returns the restarts of the pods of a workload, and reason and words of the first failure.
func (s *Snapshot) podsOfRole(w *workload) (restarts int32, reason, failed string) {
	if w.Spec.Selector == nil {
		return 0, "", ""
	}
	selector := labels.SelectorFromSet(w.Spec.Selector.MatchLabels)
	own := func(pod *corev1.Pod) bool {
		return pod.Namespace == w.Namespace && pod.DeletionTimestamp == nil && selector.Matches(labels.Set(pod.Labels))
	}
	for _, pod := range where(s.RolePods, own) {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += c.RestartCount
		}
		switch its, message := containerCause(pod); {
		case failed != "":
		case its != "":
			reason, failed = its, fmt.Sprintf("pod %s has %s (%s)", pod.Name, its, message)
		case cutOff(pod):
			reason, failed = reasons.NodeNotReady, fmt.Sprintf("pod %s is on node %s, which is not Ready", pod.Name, pod.Spec.NodeName)
		}
	}
	return restarts, reason, failed
}

// cutOff reports whether Kubernetes counts a pod as not ready because its node is not, whatever its containers are.
func cutOff(pod *corev1.Pod) bool {
	ready, containers := podCondition(pod, corev1.PodReady), podCondition(pod, corev1.ContainersReady)
	return ready.Status == corev1.ConditionFalse && containers.Status == corev1.ConditionTrue && len(pod.Spec.ReadinessGates) == 0
}

func replicas(n int32) string {
	if n == 1 {
		return "1 replica is"
	}
	return fmt.Sprintf("%d replicas are", n)
}

// failing returns the failure that a Deployment itself reports, or "".
func failing(d *appsv1.Deployment) string {
	return cmp.Or(first(d.Status.Conditions, func(c *appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue || c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
	}), &appsv1.DeploymentCondition{}).Message
}

func image(pod *corev1.PodSpec) string {
	if len(pod.Containers) == 0 {
		return "nothing"
	}
	return pod.Containers[0].Image
}

// deployment returns the Deployment of a role, or nil.
func (s *Snapshot) deployment(role string) *appsv1.Deployment {
	return first(s.Roles, func(d *appsv1.Deployment) bool { return d.Labels[ComponentLabel] == role })
}

// leading returns the holder of a role's Lease, or the trouble if no replica leads.
func (s *Snapshot) leading(role string) (holder, trouble string) {
	l := first(s.Leases, func(l *coordinationv1.Lease) bool { return l.Name == LeaseName(role) })
	if l == nil {
		return "", fmt.Sprintf("there is no Lease %s in namespace %s: no replica has led yet", LeaseName(role), s.Namespace)
	}
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return "", fmt.Sprintf("nobody holds the Lease %s", LeaseName(role))
	}
	age := s.Taken.Sub(l.Spec.RenewTime.Time)
	if age > time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second+leaseSlack {
		return "", fmt.Sprintf("no replica leads: %s renewed the Lease %s last, %s ago", *l.Spec.HolderIdentity, LeaseName(role), duration.HumanDuration(age))
	}
	return *l.Spec.HolderIdentity, ""
}

// pseudoVersion is how Go names a build of a commit without a tag, and released matches the version of
// a release. Other versions, such as tags of one's own, cannot be compared.
var (
	pseudoVersion = regexp.MustCompile(`^(.*-)?(?:0\.)?\d{14}-([0-9a-f]{12})(\+dirty)?$`)
	released      = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)[.0-9]*)?)$`)
)

// PlainVersion returns the one form in which people see a version, of a binary, a chart or a peer: 0.1.0,
// or the commit of a build between releases.
func PlainVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if m := pseudoVersion.FindStringSubmatch(version); m != nil {
		return "commit-" + m[2] + strings.Replace(m[3], "+", "-", 1)
	}
	return strings.Trim(version, "()")
}

// releaseOf returns the version of a release, and "" for any other one.
func releaseOf(version string) string {
	if m := released.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return ""
}

// tagOf returns the tag of the name of an image; "" for a name without one.
func tagOf(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// versions finds parts of the installation that are of another version than the controller, and a
// command that is of another version than the chart.
func (c *checker) versions() {
	roles := c.allRoles()
	if len(roles) == 0 || roles[0].Name != Controller {
		return
	}
	runs, chart := roles[0].Image, releaseOf(roles[0].Version)
	var odd, fixes []string
	for _, r := range roles {
		if r.Image == runs {
			continue
		}
		name := "role " + r.Name
		if r.Name == roleVKubelet {
			name = r.Object
		}
		odd = append(odd, fmt.Sprintf("%s runs %s", name, r.Image))
	}
	differs := func(version string) bool { return chart != "" && version != "" && version != chart }
	if differs(releaseOf(tagOf(runs))) {
		odd = append(odd, "the chart has version "+chart)
	}
	if len(odd) > 0 {
		fixes = append(fixes, "finish the upgrade; virtual nodes with an image of their own have it in spec.virtualKubelet.image")
	}
	if own := releaseOf(c.Command); differs(own) {
		odd = append(odd, fmt.Sprintf("this command has version %s, and the chart %s", own, chart))
		fixes = append(fixes, "use the command of version "+chart+", or upgrade the cluster")
	}
	if len(odd) > 0 {
		c.Add(idVersions, Warning, subjectVersions, fmt.Sprintf("the controller runs %s, but %s", runs, strings.Join(odd, ", ")), strings.Join(fixes, "\n"))
		return
	}
	c.Add(idVersions, OK, subjectVersions, "every part runs "+runs, "")
}

const subjectVersions = "versions"

// Versions returns what is installed in a cluster, and the findings about its versions and about
// the objects that could not be read.
func Versions(s *Snapshot) (Installation, []Finding) {
	c := &checker{Snapshot: s, Examination: Examination{Section: sectionInstallation}}
	c.reading()
	c.versions()
	out := s.installation()
	if len(out.Roles) == 0 && len(s.Unread) == 0 {
		c.Add(idVersions, Warning, subjectVersions, "liqod is not installed in this cluster", "if it is, name its namespace with --namespace")
	}
	return out, c.Findings
}
