package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

// spec is one of the suite, as ginkgo reports it.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 int64 // ns
	Failure                 struct{ Message string }
}

// group is the special interest group, with which the text of a spec begins.
func (s spec) group() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(s.text(), "["), "]")
	return name
}

func (s spec) text() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// explanation says why specs fail.
type explanation struct {
	text     string // in the text of the specs
	services string // of the run; "": with any
	why      string
	row      string // the begin of the row of docs/compatibility.md; "": it is this set-up, not liqod
}

// explanations are in the order in which they are looked for.
func explanations() []explanation {
	const twin = string(offloadingv1beta1.ServicesTwin)
	const clusterIP = "The pod that asks is in the provider. There the ClusterIP of home does not answer, and has no name"
	return []explanation{
		{"pull policy of Always", "", "This run has no registry, and containerd before 2.1 has no volumes of images", ""},
		{"different hostIP and protocol", "", "It has a pod with `hostNetwork`", "`hostNetwork`"},
		{"kubelet managed /etc/hosts", "", "It has a pod with `hostNetwork`", "`hostNetwork`"},
		{"Networking Granular Checks", twin, "A pod in the provider is told the address that another one has at home", "the address of another pod"},
		{"lifecycle hook", twin, "A pod in the provider is told the address that another one has at home", "the address of another pod"},
		{"call prestop when killing", twin, "A pod in the provider is told the address that another one has at home", "the address of another pod"},
		{"to ExternalName", twin, "The provider of this run does not list the type in `sharing.serviceTypes`", "Services of type `ExternalName`"},
		{"DNS for ExternalName", twin, "The provider of this run does not list the type in `sharing.serviceTypes`", "Services of type `ExternalName`"},
		{"DNS", twin, clusterIP, "`clusterIP` of a Service"},
		{"Services should", twin, clusterIP, "`clusterIP` of a Service"},
		{"multiple EndpointSlices", twin, clusterIP, "`clusterIP` of a Service"},
		{"NodePort", "", "The pod that asks is in the provider. There it does not reach the address of a virtual node; with `Home` it does, unless its own address has the same number", "a node port at the address of a virtual node"},
		{"Guestbook application", "", "A pod sends its own address to another one", "an address that it sends to others in a message"},
	}
}

// explanation returns the one of a spec in a run with these services; nil: nobody has found out yet.
func (s spec) explanation(services string) *explanation {
	for _, e := range explanations() {
		if strings.Contains(s.text(), e.text) && (e.services == "" || e.services == services) {
			return &e
		}
	}
	return nil
}

// reason says why the spec fails, and what the docs say about that.
func (s spec) reason(services string) string {
	switch e := s.explanation(services); {
	case e == nil:
		return "Not explained"
	case e.row == "":
		return e.why
	default:
		return e.why + ": [compatibility.md](compatibility.md), " + e.row
	}
}

// cause is the first line that the spec says of its failure.
func (s spec) cause() string {
	localPath := regexp.MustCompile(`/tmp/[^ ]*`) // of the machine that ran the suite
	for line := range strings.Lines(s.Failure.Message) {
		if line = localPath.ReplaceAllString(strings.TrimSpace(line), "…"); line != "" {
			return line[:min(len(line), 200)]
		}
	}
	return s.State
}

// readReport returns the specs of a report that ran.
func readReport(path string) ([]spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the report of the suite: %w", err)
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, fmt.Errorf("reading the report of the suite: %w", err)
	}
	var specs []spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			// Those that skip themselves ask for what the cluster does not have, such as a provider of clouds.
			if s.State != "skipped" && s.State != "pending" && (s.LeafNodeType == "It" || s.State != "passed") {
				specs = append(specs, s)
			}
		}
	}
	return specs, nil
}

// result is what docs/conformance.md has of a run.
type result struct {
	Services       string // of the NamespaceOffloadings: Home or Twin
	Procs, Minutes int
	There, Here    int // namespaces of the suite with pods in the provider, and at home
	groups         map[string][2]int
	failed         []spec
}

// summarize counts specs by group and state.
func summarize(specs []spec) result {
	r := result{groups: map[string][2]int{}}
	for _, s := range specs {
		count := r.groups[s.group()]
		if s.State == "passed" {
			count[0]++
		} else {
			count[1]++
			r.failed = append(r.failed, s)
		}
		r.groups[s.group()] = count
	}
	slices.SortFunc(r.failed, func(a, b spec) int { return cmp.Compare(a.text(), b.text()) })
	return r
}

// heading is the title of the section of a run.
func (r result) heading() string { return "## Services " + r.Services }

// markdown is the section of the run.
func (r result) markdown() string {
	var all [2]int
	var rows strings.Builder
	groups := make([]string, 0, len(r.groups))
	for name, count := range r.groups {
		groups = append(groups, name)
		all[0], all[1] = all[0]+count[0], all[1]+count[1]
	}
	slices.Sort(groups)
	for _, name := range groups {
		fmt.Fprintf(&rows, "| %s | %d | %d |\n", name, r.groups[name][0], r.groups[name][1])
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n%d of %d specs passed in %d minutes, %d at a time. %d namespaces of the suite had pods that ran in the provider, %d had pods that\nran at home.\n\n",
		r.heading(), all[0], all[0]+all[1], r.Minutes, r.Procs, r.There, r.Here)
	fmt.Fprintf(&out, "| group | passed | failed |\n|---|---|---|\n%s| all | %d | %d |\n", rows.String(), all[0], all[1])
	if len(r.failed) > 0 {
		out.WriteString("\nFailed:\n\n")
	}
	for _, s := range r.failed {
		fmt.Fprintf(&out, "- %s: `%s`. %s.\n", strings.TrimSuffix(s.text(), " [Conformance]"), strings.ReplaceAll(s.cause(), "`", "'"), s.reason(r.Services))
	}
	return out.String()
}

// write puts the section of the run into the page, in place of the one of the last run with the same services.
func (r result) write(page string) error {
	data, err := os.ReadFile(page)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("reading the page about conformance: %w", err)
	}
	sections := map[string]string{r.heading(): r.markdown()}
	for _, section := range strings.Split(string(data), "\n## ")[1:] {
		section = "## " + strings.TrimRight(section, "\n") + "\n"
		if title, _, _ := strings.Cut(section, "\n"); title != r.heading() {
			sections[title] = section
		}
	}
	var out strings.Builder
	out.WriteString(head())
	for _, title := range []string{"## Services Home", "## Services Twin", "## Services None"} {
		if sections[title] != "" {
			out.WriteString("\n" + sections[title])
		}
	}
	return os.WriteFile(page, []byte(out.String()), 0o644)
}

func head() string {
	return strings.NewReplacer("~", "`", "VERSION", lab.KubernetesVersion).Replace(pageHead)
}

// pageHead is the begin of the page, with ~ for its code.
const pageHead = `# Conformance

~make conformance~ runs the conformance suite of Kubernetes (k8s.io/kubernetes/test/e2e) VERSION in a consumer whose pods
run in another cluster, and writes this page. The consumer has one real node, which has a taint, and two virtual nodes of
the same provider, which has two nodes. The pods of both clusters have the same ranges of addresses, and so have the
Services. The network fabric connects them. Each pod has a link and a route of its own on its node (the network plugin ptp).
The images are made of Debian packages and of the programs of Kubernetes. Each namespace that the suite creates is offloaded,
with ~namespaceMappingStrategy: EnforceSameName~ and the ~services~ of the section. With None, nothing is offloaded: pods run
on the real node.

Specs that need the cluster for themselves (Serial, Disruptive) or much time (Slow) do not run. The settings beside the
defaults, in both clusters: ~controller.podSecurityLevel: privileged~, ~controller.twinNames: ['*']~,
~hostPath~ in ~controller.volumeTypes~, ~sharing.namespacesPerPeer: 2000~, ~vkubelet.tokenBinding: pod~, and ~nodeTaint: false~ for the virtual nodes.
`

// TestExplanationsAreRows: what liqod does otherwise than the suite expects is a row of docs/compatibility.md.
func TestExplanationsAreRows(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "compatibility.md"))
	require.NoError(t, err)
	for _, e := range explanations() {
		if e.row != "" {
			require.Contains(t, string(data), "\n| "+e.row, e.text)
		}
	}
}

// TestFailuresAreExplained: the reason of each spec that docs/conformance.md lists is the one that explanations give now,
// for the services of the section.
func TestFailuresAreExplained(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	require.NoError(t, err)
	failedSpec := regexp.MustCompile("(?m)^- (\\[sig-[^`]+): `[^`]*`\\. (.+)\\.$") // its text, its cause and its reason
	for _, section := range strings.Split(string(data), "\n## Services ")[1:] {
		services, _, _ := strings.Cut(section, "\n")
		failed := failedSpec.FindAllStringSubmatch(section, -1)
		_, count, _ := strings.Cut(section, "\n| all | ")
		require.Regexp(t, fmt.Sprintf(`^\d+ \| %d \|\n`, len(failed)), count, "specs of %s that failed", services)
		for _, line := range failed {
			s := spec{LeafNodeText: line[1]}
			require.NotNil(t, s.explanation(services), "%s: %s", services, line[1])
			require.Equal(t, s.reason(services), line[2], "%s: %s", services, line[1])
		}
	}
}

// TestReport: a report becomes a section of the page, which keeps that of other services.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	report, page := filepath.Join(dir, "report.json"), filepath.Join(dir, "conformance.md")
	require.NoError(t, os.WriteFile(report, []byte(`[{"SpecReports": [
		{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should run [Conformance]", "State": "passed"},
		{"ContainerHierarchyTexts": ["[sig-network] Proxy"], "LeafNodeType": "It", "LeafNodeText": "should answer [Conformance]", "State": "failed",
		 "Failure": {"Message": "\nno `+"`answer`"+`\nat all"}},
		{"ContainerHierarchyTexts": ["[sig-node] Clouds"], "LeafNodeType": "It", "LeafNodeText": "should rain", "State": "skipped"}
	]}]`), 0o644))
	specs, err := readReport(report)
	require.NoError(t, err)
	r := summarize(specs)
	r.Services, r.Procs, r.Minutes, r.There, r.Here = "Twin", 4, 61, 7, 1
	require.Equal(t, `## Services Twin

1 of 2 specs passed in 61 minutes, 4 at a time. 7 namespaces of the suite had pods that ran in the provider, 1 had pods that
ran at home.

| group | passed | failed |
|---|---|---|
| sig-network | 0 | 1 |
| sig-node | 1 | 0 |
| all | 1 | 1 |

Failed:

- [sig-network] Proxy should answer: `+"`no 'answer'`. Not explained.\n", r.markdown())

	require.NoError(t, r.write(page))
	home := result{Services: "Home"}
	require.NoError(t, home.write(page))
	require.NoError(t, r.write(page))
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, head()+"\n"+home.markdown()+"\n"+r.markdown(), string(data))
}
