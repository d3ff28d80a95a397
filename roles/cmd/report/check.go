package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/util/cert"
)

// Sections of the findings, in the order of the text; those of peers come in between.
const (
	sectionInstallation = "Installation"
	sectionOffloading   = "Offloaded namespaces"
	sectionPods         = "Pods in providers"
	sectionVolumes      = "Volumes"
	sectionDaemonSets   = "DaemonSets"
)

// OldestKubernetes is the kubeVersion of the chart.
const OldestKubernetes = "1.32.0"

// kinds are the plural names that an installation has.
var kinds = []string{
	"addresspools", "configurations", "connections", "foreignclusters", "ips", "namespacemaps", "namespaceoffloadings", "networks",
	"quotas", "resourceoffers", "resourcerequests", "shadowendpointslices", "shadowpods", "virtualnodes",
}

// Check looks at everything in a snapshot.
func Check(s *Snapshot) []Finding {
	c := &checker{Snapshot: s, Examination: Examination{Section: sectionInstallation}}
	if s.Only != "" {
		c.readingNamespace()
		c.judgeNamespaces()
		c.Section = sectionVolumes
		c.movingData()
		return c.Findings
	}
	c.installation()
	for _, id := range c.peerIDs() {
		c.Section, c.Peer = "Peering with "+id, id
		c.peering(id)
	}
	c.judgeNamespaces()
	c.Section = sectionVolumes
	if text := c.kept(); text != "" { // it is no fault
		c.Add(idKept, OK, "kept data", text, "")
	}
	c.movingData()
	c.Section, c.Peer = sectionDaemonSets, ""
	c.daemonSets()
	return c.Findings
}

// judgeNamespaces adds the findings about offloaded namespaces and their pods.
func (c *checker) judgeNamespaces() {
	c.Section, c.Peer = sectionOffloading, ""
	c.offloadings()
	c.Section = sectionPods
	c.pods()
}

func (c *checker) installation() {
	c.KubernetesVersion(idKubernetes, Warning, c.Kubernetes)
	c.reading()
	if !c.unread(ReadKinds) {
		c.crds()
	}
	c.installed()
	c.webhook()
	c.versions()
	c.overlays()
}

// KubernetesVersion adds the finding about the version of an API server; old is the level of one that is too old. It
// returns the version, or nil if liqod is not made for it.
func (e *Examination) KubernetesVersion(id ID, old Level, text string) *version.Version {
	const subject = "Kubernetes"
	have, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		e.Add(id, Unknown, subject, fmt.Sprintf("version %q is not understood", text), "")
		return nil
	case have.LessThan(version.MustParseGeneric(OldestKubernetes)):
		e.Add(id, old, subject, fmt.Sprintf("version %s is older than %s, which liqod is made for", text, OldestKubernetes), "upgrade the cluster")
		return nil
	case strings.Contains(text, "+k3s") || strings.Contains(text, "+rke2"):
		text += "; kubectl logs and exec reach pods on virtual nodes only with egress-selector-mode: disabled in its configuration: docs/platforms.md"
	}
	e.Add(id, OK, subject, text, "")
	return have
}

func (c *checker) crds() {
	missing := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return slices.Contains(c.Kinds, kind) })
	if len(missing) > 0 {
		c.Add(idKinds, Problem, "CRDs", "the API server lacks "+strings.Join(missing, ", "),
			"install liqod with its chart, or upgrade the release: it brings its CRDs; see also --context")
		return
	}
	c.Add(idKinds, OK, "CRDs", fmt.Sprintf("all %d kinds are served", len(kinds)), "")
}

func (c *checker) webhook() {
	const subject = "admission webhook"
	if !c.unread(ReadWebhooks) && len(c.Webhooks) == 0 {
		c.Add(idPodsWebhook, Problem, subject, "there is no MutatingWebhookConfiguration of liqod: pods get no tolerations for virtual nodes", "upgrade the release of the chart: it has one")
		return
	}
	for _, configuration := range c.Webhooks {
		for _, w := range configuration.Webhooks {
			c.bundle(subject+" "+w.Name, "MutatingWebhookConfiguration "+configuration.Name, w.ClientConfig.CABundle, Problem, "pods of offloaded namespaces are refused")
		}
	}
	if !c.unread(ReadRules) {
		c.webhookRules(subject)
	}
}

// webhookRules looks at the webhooks that only refuse and warn: without them nothing stops.
func (c *checker) webhookRules(subject string) {
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
		c.Add(idRulesWebhook, Warning, subject, "there is no ValidatingWebhookConfiguration of liqod: objects are not checked when they are written", "upgrade the release of the chart: it has one")
	}
	if trusted > 0 {
		c.Add(idRulesWebhook, OK, subject, fmt.Sprintf("%d rules for objects that people write", trusted), "")
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
		c.Add(id, level, name, fmt.Sprintf("the caBundle of %s %v: %s", configuration, err, consequence), fix)
	case !expires.After(c.Taken):
		c.Add(id, level, name, fmt.Sprintf("the caBundle has expired at %s", expires.Format(time.RFC3339)), fix)
	default:
		c.Add(id, OK, name, "its caBundle is set, valid until "+expires.Format(time.DateOnly), "")
	}
}

// lastDay is until when a bundle of certificates has a valid one.
func lastDay(bundle []byte) (last time.Time, err error) {
	if len(bundle) == 0 {
		return last, fmt.Errorf("is empty")
	}
	certs, _ := cert.ParseCertsPEM(bundle) // the API server accepts no other
	for _, c := range certs {
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	if last.IsZero() {
		return last, fmt.Errorf("holds no certificate")
	}
	return last, nil
}

// installed adds the findings about the roles of the chart.
func (c *checker) installed() {
	roles := c.allRoles()
	for _, known := range roleChecks {
		found := false
		for _, r := range roles {
			switch {
			case r.Name != known.role:
			case r.Name != roleVKubelet:
				c.Add(known.id, r.Level, "role "+r.Name, r.Message, r.fix)
				found = true
			case r.Level == Problem && r.Ready > 0: // else the findings of its peer say it
				c.Add(known.id, r.Level, "vkubelet "+r.Object, r.Message, r.fix)
			}
		}
		if !found && (known.role == Controller || known.role == Webhook) {
			c.absent(known.role, known.id)
		}
	}
}

// absent adds the finding about a role without a Deployment.
func (c *checker) absent(role string, id ID) {
	subject, holder, trouble := "role "+role, "", ""
	if c.Unread[ReadLeases] == nil {
		holder, trouble = c.leading(role)
	}
	switch {
	case trouble != "" && c.unread(ReadInstallation):
		c.Add(id, Problem, subject, trouble, fmt.Sprintf("kubectl -n %s get pods; kubectl -n %s logs deployment/%s", c.Namespace, c.Namespace, LeaseName(role)))
	case c.unread(ReadInstallation) || c.unread(ReadLeases):
	case trouble != "":
		c.Add(id, Problem, subject, fmt.Sprintf("namespace %s has no Deployment of it, and %s", c.Namespace, trouble),
			"install liqod with its chart, or name the namespace that it is installed in with --namespace")
	default:
		c.Add(id, OK, subject, holder+" leads, outside of a Deployment", "")
	}
}
