package report

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/version"
)

// Sections of the findings, in the order of the text; those of peers come in between.
const (
	sectionInstallation = "Installation"
	sectionOffloading   = "Offloaded namespaces"
	sectionPods         = "Pods in providers"
	sectionDaemonSets   = "DaemonSets"
)

// oldestKubernetes is what the chart asks for.
const oldestKubernetes = "1.32.0"

// leaseSlack is what the clock of a holder may be off, beyond the duration of its Lease.
const leaseSlack = 2 * time.Second

// kinds are the plural names that an installation has.
var kinds = []string{
	"addresspools", "configurations", "connections", "foreignclusters", "ips", "namespacemaps", "namespaceoffloadings", "networks",
	"quotas", "resourceoffers", "resourcerequests", "shadowendpointslices", "shadowpods", "virtualnodes",
}

// checker collects findings about a snapshot.
type checker struct {
	*Snapshot
	section, peer string
	findings      []Finding
}

// Check looks at everything in a snapshot.
func Check(s *Snapshot) []Finding {
	c := &checker{Snapshot: s, section: sectionInstallation}
	c.installation()
	for _, id := range c.peerIDs() {
		c.section, c.peer = "Peering with "+id, id
		c.peering(id)
	}
	c.section, c.peer = sectionOffloading, ""
	c.offloadings()
	c.section = sectionPods
	c.pods()
	c.section, c.peer = sectionDaemonSets, ""
	c.daemonSets()
	return c.findings
}

func (c *checker) add(id ID, level Level, subject, message, fix string) {
	c.report(Finding{ID: id, Level: level, Subject: subject, Message: message, Fix: fix})
}

// report adds a finding to the present section and peer.
func (c *checker) report(f Finding) {
	f.Section, f.Peer, f.Docs = c.section, c.peer, f.ID.Docs()
	c.findings = append(c.findings, f)
}

func (c *checker) installation() {
	c.kubernetes()
	c.reading()
	if !c.unread(ReadKinds) {
		c.crds()
	}
	for _, role := range []string{Controller, Webhook} {
		c.role(role)
	}
	c.webhook()
	c.images()
	c.overlays()
}

func (c *checker) kubernetes() {
	const subject = "Kubernetes"
	have, err := version.ParseGeneric(c.Kubernetes)
	switch {
	case err != nil:
		c.add(idKubernetes, Unknown, subject, fmt.Sprintf("the version %q is not understood", c.Kubernetes), "")
	case have.LessThan(version.MustParseGeneric(oldestKubernetes)):
		c.add(idKubernetes, Warning, subject, fmt.Sprintf("%s is older than %s, which liqod is made for", c.Kubernetes, oldestKubernetes), "upgrade the cluster")
	default:
		c.add(idKubernetes, OK, subject, c.Kubernetes, "")
	}
}

func (c *checker) crds() {
	var missing []string
	for _, kind := range kinds {
		if !slices.Contains(c.Kinds, kind) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		c.add(idKinds, Problem, "CRDs", "the API server lacks "+strings.Join(missing, ", "),
			"install liqod with its chart, or upgrade the release: it brings its CRDs; see also --context")
		return
	}
	c.add(idKinds, OK, "CRDs", fmt.Sprintf("all %d kinds are served", len(kinds)), "")
}

// deployment returns the Deployment of a role, or nil.
func (s *Snapshot) deployment(role string) *appsv1.Deployment {
	for i := range s.Roles {
		if s.Roles[i].Labels[ComponentLabel] == role {
			return &s.Roles[i]
		}
	}
	return nil
}

func (s *Snapshot) lease(role string) *coordinationv1.Lease {
	for i := range s.Leases {
		if s.Leases[i].Name == LeaseName(role) {
			return &s.Leases[i]
		}
	}
	return nil
}

// leading says who leads a role, or why nobody does.
func (s *Snapshot) leading(role string) (holder, trouble string) {
	l := s.lease(role)
	switch {
	case l == nil:
		return "", fmt.Sprintf("there is no Lease %s in namespace %s: no replica has led yet", LeaseName(role), s.Namespace)
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil:
		return "", fmt.Sprintf("nobody holds the Lease %s", LeaseName(role))
	}
	age := s.Taken.Sub(l.Spec.RenewTime.Time)
	if age > time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second+leaseSlack {
		return "", fmt.Sprintf("no replica leads: %s renewed the Lease %s last, %s ago", *l.Spec.HolderIdentity, LeaseName(role), duration.HumanDuration(age))
	}
	return *l.Spec.HolderIdentity, ""
}

// stale says that nothing can be believed that the controller has written about a state.
func (s *Snapshot) stale() bool {
	if s.Unread[ReadLeases] != nil {
		return false // said elsewhere, and no reason to doubt the rest
	}
	_, trouble := s.leading(Controller)
	return trouble != ""
}

func (c *checker) role(role string) {
	subject, id := "role "+role, idController
	if role == Webhook {
		id = idWebhook
	}
	holder, trouble := "", ""
	if c.Unread[ReadLeases] == nil {
		holder, trouble = c.leading(role)
	}
	d := c.deployment(role)
	logs := fmt.Sprintf("kubectl -n %s get pods; kubectl -n %s logs deployment/%s", c.Namespace, c.Namespace, LeaseName(role))
	if d == nil {
		switch {
		case trouble != "" && c.unread(ReadInstallation):
			c.add(id, Problem, subject, trouble, logs)
		case c.unread(ReadInstallation) || c.unread(ReadLeases):
		case trouble != "":
			c.add(id, Problem, subject, fmt.Sprintf("namespace %s has no Deployment of it, and %s", c.Namespace, trouble),
				"install liqod with its chart, or name the namespace that it is installed in with --namespace")
		default:
			c.add(id, OK, subject, holder+" leads, outside of a Deployment", "")
		}
		return
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	ready := fmt.Sprintf("%d of %s ready", d.Status.ReadyReplicas, replicas(want)) + failing(d)
	switch {
	case want == 0:
		c.add(id, Problem, subject, "it is scaled to zero", fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=1\nor as many replicas as %s.replicas has in the values of the chart", d.Namespace, d.Name, role))
	case d.Status.ReadyReplicas == 0:
		c.add(id, Problem, subject, ready, logs)
	case trouble != "":
		c.add(id, Problem, subject, ready+", but "+trouble, fmt.Sprintf("%s\nshows why. If it hangs:\nkubectl -n %s rollout restart deployment/%s", logs, d.Namespace, d.Name))
	case d.Status.ReadyReplicas < want:
		c.add(id, Warning, subject, ready, logs)
	default:
		c.add(id, OK, subject, ready+led(holder), "")
	}
}

func replicas(n int32) string {
	if n == 1 {
		return "1 replica is"
	}
	return fmt.Sprintf("%d replicas are", n)
}

// failing returns the failure that a Deployment itself reports, or "".
func failing(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return ": " + c.Message
		}
	}
	return ""
}

func led(holder string) string {
	if holder == "" {
		return ""
	}
	return "; " + holder + " leads"
}

func (c *checker) webhook() {
	const subject = "admission webhook"
	if !c.unread(ReadWebhooks) && len(c.Webhooks) == 0 {
		c.add(idPodsWebhook, Problem, subject, "there is no MutatingWebhookConfiguration of liqod: pods get no tolerations for virtual nodes", "upgrade the release of the chart: it has one")
		return
	}
	for _, configuration := range c.Webhooks {
		for _, w := range configuration.Webhooks {
			c.bundle(subject+" "+w.Name, "MutatingWebhookConfiguration "+configuration.Name, w.ClientConfig.CABundle, Problem, "pods of offloaded namespaces are refused")
		}
	}
	if !c.unread(ReadRules) {
		c.rules(subject)
	}
}

// rules looks at the webhooks that only refuse and warn: without them nothing stops.
func (c *checker) rules(subject string) {
	trusted := 0
	for _, configuration := range c.Rules {
		for _, w := range configuration.Webhooks {
			name := subject + " " + w.Name
			if expires, err := lastDay(w.ClientConfig.CABundle); err == nil && expires.After(c.Taken) {
				trusted++
				continue
			}
			c.bundle(name, "ValidatingWebhookConfiguration "+configuration.Name, w.ClientConfig.CABundle, Warning, "objects are not checked when they are written")
		}
	}
	if len(c.Rules) == 0 {
		c.add(idRulesWebhook, Warning, subject, "there is no ValidatingWebhookConfiguration of liqod: objects are not checked when they are written", "upgrade the release of the chart: it has one")
	}
	if trusted > 0 {
		c.add(idRulesWebhook, OK, subject, fmt.Sprintf("%d rules for objects that people write", trusted), "")
	}
}

// bundle looks at the certificates that the API server trusts for one webhook.
func (c *checker) bundle(name, configuration string, bundle []byte, level Level, consequence string) {
	id := idPodsWebhook
	if level != Problem {
		id = idRulesWebhook
	}
	fix := fmt.Sprintf("kubectl -n %s logs deployment/%s\nshows why the leader of role controller does not write it.", c.Namespace, LeaseName(Controller))
	expires, err := lastDay(bundle)
	switch {
	case err != nil:
		c.add(id, level, name, fmt.Sprintf("the caBundle of %s %v: %s", configuration, err, consequence), fix)
	case !expires.After(c.Taken):
		c.add(id, level, name, fmt.Sprintf("the caBundle has expired at %s", expires.Format(time.RFC3339)), fix)
	default:
		c.add(id, OK, name, "its caBundle is set, valid until "+expires.Format(time.DateOnly), "")
	}
}

// lastDay is until when a bundle of certificates has a valid one.
func lastDay(bundle []byte) (last time.Time, err error) {
	if len(bundle) == 0 {
		return last, fmt.Errorf("is empty")
	}
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.NotAfter.After(last) {
			last = cert.NotAfter
		}
	}
	if last.IsZero() {
		return last, fmt.Errorf("holds no certificate")
	}
	return last, nil
}

// images finds parts of the installation that are of another version than the controller.
func (c *checker) images() {
	d := c.deployment(Controller)
	if d == nil {
		return
	}
	want, odd := image(d), []string(nil)
	if w := c.deployment(Webhook); w != nil && image(w) != want {
		odd = append(odd, fmt.Sprintf("role webhook runs %s", image(w)))
	}
	for i := range c.VKubelets {
		if vk := &c.VKubelets[i]; image(vk) != want {
			odd = append(odd, fmt.Sprintf("%s/%s runs %s", vk.Namespace, vk.Name, image(vk)))
		}
	}
	if len(odd) > 0 {
		c.add(idVersions, Warning, "versions", fmt.Sprintf("the controller runs %s, but %s", want, strings.Join(odd, ", ")),
			"finish the upgrade; virtual nodes with an image of their own have it in spec.virtualKubelet.image")
		return
	}
	c.add(idVersions, OK, "versions", "every part runs "+want, "")
}

func image(d *appsv1.Deployment) string {
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return "nothing"
	}
	return d.Spec.Template.Spec.Containers[0].Image
}
