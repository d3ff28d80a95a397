package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// faultCase is a row of the tables of faults: status and check name its cause and a fix, and the fix works
// as it is pasted.
type faultCase struct {
	name string
	// at is the cluster whose people look. Default: rome.
	at *site.Site
	// as are further flags of status and check.
	as []string
	// cause are texts that one line of the output has.
	cause []string
	// quiet says that check names the cause, and status does not.
	quiet bool
	// make makes the fault.
	make func(*testing.T)
	// only picks the commands of the fix that have this text, where a fix has several ways.
	only string
	// fill are the words in capitals of the fix, each with what a person decides.
	fill map[string]string
	// editor is a script of sed that edits what a command opens in an editor.
	editor string
	// runbook is the section of docs/runbooks.md about this fault, and command one of its commands, which the
	// fix has too. Words in capitals stand for what is known of the fault.
	runbook, command string
	// then does what no command can do here, such as the work of a kubelet.
	then func(*testing.T)
}

// mends makes faults, waits until the commands name the causes of all, runs the fixes, and waits until no
// cause is left.
func (w *world) mends(t *testing.T, faults ...faultCase) {
	t.Helper()
	for i := range faults {
		if faults[i].at == nil {
			faults[i].at = w.rome
		}
		if faults[i].make != nil {
			faults[i].make(t)
		}
	}
	fixes := map[string][]string{}
	within(t, longest, "check names the causes", func(ctx context.Context) error {
		return w.look(ctx, "check", faults, func(f faultCase, fix []string, found bool) error {
			if !found {
				return fmt.Errorf("%s: no line has %q", f.name, f.cause)
			}
			fixes[f.name] = fix
			return nil
		})
	})
	within(t, longest, "status names the same causes and fixes", func(ctx context.Context) error {
		return w.look(ctx, "status", faults, func(f faultCase, fix []string, found bool) error {
			return lab.Wrong(nil, !f.quiet && (!found || !slices.Equal(fix, fixes[f.name])), "%s: %q has the fix %q, not %q", f.name, f.cause, fix, fixes[f.name])
		})
	})
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { w.paste(t, f, fixes[f.name]) })
	}
	for _, command := range []string{"status", "check"} {
		within(t, longest, command+" names no cause any more", func(ctx context.Context) error {
			return w.look(ctx, command, faults, func(f faultCase, _ []string, found bool) error {
				return lab.Wrong(nil, found, "%s: there is still a line with %q", f.name, f.cause)
			})
		})
	}
}

// look runs a command once for each cluster and set of flags, and judges the findings of the faults.
func (w *world) look(ctx context.Context, command string, faults []faultCase, judge func(faultCase, []string, bool) error) error {
	printed := map[string]string{}
	var wrong []error
	for _, f := range faults {
		key := f.at.Name + strings.Join(f.as, " ")
		if printed[key] == "" {
			out, code, err := w.command(ctx, f.at, append([]string{command}, f.as...)...)
			if err != nil {
				return err
			}
			if !strings.Contains(out, "Cluster ") && !strings.Contains(out, "Installation") {
				return fmt.Errorf("%s ended with code %d: %s", command, code, out)
			}
			printed[key] = out
		}
		fix, found := findingOf(printed[key], f.cause)
		if err := judge(f, fix, found); err != nil {
			wrong = append(wrong, fmt.Errorf("%w:\n%s", err, printed[key]))
		}
	}
	return errors.Join(wrong...)
}

// findingOf returns the lines of the fix of the first problem, warning or unknown state in what a command
// printed whose line has all of the texts.
func findingOf(out string, texts []string) (fix []string, found bool) {
	const first, next = "      Fix: ", "           "
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		switch {
		case found && strings.HasPrefix(line, first):
			fix = append(fix, strings.TrimPrefix(line, first))
		case found && fix != nil && strings.HasPrefix(line, next):
			fix = append(fix, strings.TrimPrefix(line, next))
		case found:
			return fix, true
		default:
			mark, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			found = slices.Contains([]string{"✘", "‼", "?"}, mark) &&
				!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
		}
	}
	return fix, found
}

// paste runs the commands of a fix in a shell, each in the cluster that the fix says.
func (w *world) paste(t *testing.T, f faultCase, fix []string) {
	t.Helper()
	t.Logf("fix: %s", strings.Join(fix, "\n"))
	w.inRunbook(t, f, fix)
	at, ran, token := f.at, 0, ""
	for _, line := range fix {
		switch {
		case line == "In this cluster:", strings.HasPrefix(line, "Then here"):
			at = f.at
		case strings.HasPrefix(line, "In "):
			at = w.other(f.at)
		}
		if !isCommand(line) || !strings.Contains(line, f.only) {
			continue
		}
		for word, value := range f.fill {
			line = strings.ReplaceAll(line, word, value)
		}
		line = strings.ReplaceAll(line, "TOKEN", token)
		out, err := w.shell(t, at, line, f.editor)
		require.NoError(t, err, "%s\n%s", line, out)
		for said := range strings.Lines(out) {
			if said = strings.TrimSpace(said); strings.HasPrefix(said, "liqod1.") {
				token = said
			}
		}
		ran++
	}
	require.NotZero(t, ran, "the fix has no command with %q: %q", f.only, fix)
	if f.then != nil {
		f.then(t)
	}
}

// inRunbook checks that the page about a fault has the command that mends it.
func (w *world) inRunbook(t *testing.T, f faultCase, fix []string) {
	t.Helper()
	if f.runbook == "" {
		return
	}
	page := must(os.ReadFile("../../docs/runbooks.md"))(t)
	_, section, found := strings.Cut(string(page), "\n## "+f.runbook+"\n")
	require.True(t, found, f.runbook)
	section, _, _ = strings.Cut(section, "\n## ")
	require.Contains(t, section, f.command)
	words := regexp.MustCompile(`\b[A-Z]{2,}\b`).ReplaceAllString(regexp.QuoteMeta(f.command), `\S+`)
	words = strings.ReplaceAll(words, `\$\{\S+:-vi\}`, `\$\{EDITOR:-vi\}`)
	same := regexp.MustCompile(`^` + words + `$`)
	require.True(t, slices.ContainsFunc(fix, same.MatchString), "%s is not in %q", f.command, fix)
}

// isCommand tells a command from what is said about it.
func isCommand(line string) bool {
	return slices.ContainsFunc([]string{"kubectl ", "liqod ", "curl "}, func(program string) bool { return strings.HasPrefix(line, program) })
}

func (w *world) other(s *site.Site) *site.Site {
	if s == w.rome {
		return w.milan
	}
	return w.rome
}

// shell runs a line as a person does who has kubectl, liqod and the kubeconfig of a cluster's administrator.
func (w *world) shell(t *testing.T, at *site.Site, line, editor string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, path := range map[string]string{"kubectl": w.sites.Lab.Kubelab(), "liqod": w.sites.Command(t.Context()).Path} {
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	script := filepath.Join(dir, "editor")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec sed -i '"+editor+"' \"$1\"\n"), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + at.Kubeconfig, "EDITOR=" + script}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// testCommandNodes makes faults of a second virtual node, which no other namespace uses.
func testCommandNodes(t *testing.T, w *world) {
	const namespace = "budgeted"
	w.mends(t, faultCase{
		name: "NoCapacity", cause: []string{"virtual node spare: it is Ready, but has no room for pods"}, fill: map[string]string{"CPU": "10", "MEMORY": "10Gi", "PODS": "10"},
		make: func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			defer cancel()
			require.NoError(t, w.rome.AddVirtualNode(ctx, w.milan, site.PeerOptions{Node: "spare", Labels: map[string]string{"region": "south"},
				Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}))
		},
	})
	w.mends(t, w.hangingVKubelet("spare"))
	w.mends(t, faultCase{
		name: "DisruptionBudget", cause: []string{"virtual node spare: PodDisruptionBudget budgeted/web admits no eviction"},
		make: func(t *testing.T) {
			w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{ClusterSelector: region("south")})
			w.creates(t, namespace, nil)
			within(t, longest, "its pod runs", w.available("web", namespace, 1))
			budget(t, w.rome, namespace, 1, 0)
			require.NoError(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan).Delete(t.Context(), "spare", metav1.DeleteOptions{}))
		},
		then: func(t *testing.T) {
			vkubeletGoes(t, w.rome, longest, tenantOfMilan, "spare")
			w.namespaceDeleted(t, namespace)
		},
	})
}

// hangingVKubelet is a vkubelet whose pod runs, and whose process does nothing.
func (w *world) hangingVKubelet(node string) faultCase {
	selected := metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel + "=" + node}
	pods, before := w.rome.Client().CoreV1().Pods(tenantOfMilan), map[types.UID]bool{}
	return faultCase{
		name: "VKubeletHangs", cause: []string{"virtual node " + node + ": the Node is not Ready: "}, only: "delete pods",
		runbook: "LiqodVirtualNodeNotReady", command: "kubectl -n TENANT delete pods -l liqo.io/virtual-node=NODE",
		make: func(t *testing.T) {
			within(t, longest, "its Deployment has pods", func(ctx context.Context) error {
				list, err := pods.List(ctx, selected)
				for i := range list.Items {
					before[list.Items[i].UID] = true
				}
				return lab.Wrong(err, len(before) == 0, "there are none")
			})
			(*w.rome.VKubelet(node)).Kill()
		},
		then: func(t *testing.T) {
			within(t, longest, "other pods replace them", lab.Some(pods, selected, func(pod *corev1.Pod) bool { return !before[pod.UID] && pod.DeletionTimestamp == nil }))
			require.NoError(t, w.sites.Restart(w.rome.VKubelet(node)))
		},
	}
}

// mendsQuotas makes faults of the Quota that milan gives to rome. The namespaces of its pods stay.
func (w *world) mendsQuotas(t *testing.T) {
	t.Helper()
	quotas := w.milan.Liqod().OffloadingV1beta1().Quotas("liqo-tenant-rome")
	requests := func(cpu string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Mi")}
		}
	}
	kubetest.Create(t, quotas, &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: offloadingv1beta1.QuotaSpec{
		LimitsEnforcement: offloadingv1beta1.EnforcementSoft, Resources: defaultsOf("1", "1Gi", "100"),
	}})
	w.mends(t,
		faultCase{
			name: "QuotaUndeclared", cause: []string{"pods of namespace undeclared: ", "requires declared CPU and memory"}, make: w.deploys("undeclared", nil),
			editor: `s/resources: {}/resources: {requests: {cpu: 10m, memory: 1Mi}}/`,
		},
		faultCase{
			name: "QuotaTooSmall", cause: []string{"pods of namespace huge: ", "the pod alone is larger than the quota"}, make: w.deploys("huge", requests("5")),
			only: "edit", editor: `s/cpu: "5"/cpu: 10m/`,
		},
		faultCase{
			name: "QuotaExceeded", cause: []string{"pods of namespace full: ", "QuotaExceeded"}, only: "edit quotas", editor: `s/cpu: "1"/cpu: "4"/`,
			runbook: "LiqodQuotaWaiting", command: "kubectl -n TENANT edit quotas.offloading.liqo.io",
			make: func(t *testing.T) {
				w.faulty(t, "full")
				d := deployment("web", 2)
				requests("600m")(&d.Spec.Template.Spec)
				kubetest.Create(t, w.rome.Client().AppsV1().Deployments("full"), d)
			},
		})
	w.mends(t, faultCase{
		name: "QuotaCordoned", cause: []string{"pods of namespace closed: ", "QuotaCordoned"}, only: "edit quotas", editor: `s/cordoned: true/cordoned: false/`,
		make: func(t *testing.T) {
			kubetest.Patch(t, quotas, "q", types.MergePatchType, []byte(`{"spec":{"cordoned":true}}`))
			w.deploys("closed", requests("10m"))(t)
		},
	})
	require.NoError(t, quotas.Delete(t.Context(), "q", metav1.DeleteOptions{}))
}

func defaultsOf(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods),
	}
}

// mendsOffer has a pod become larger in milan than the offer of 8 CPUs, whose Quota follows the offer.
func (w *world) mendsOffer(t *testing.T) {
	t.Helper()
	const namespace, twin = "lent", "lent-rome"
	pods := w.milan.Client().CoreV1().Pods(twin)
	w.mends(t, faultCase{
		name: "OfferTooSmall", cause: []string{"pods of namespace lent: ", "the pod alone is larger than the quota"},
		only: "apply", fill: map[string]string{"CPU": "4", "MEMORY": "1Gi", "PODS": "1"},
		make: func(t *testing.T) {
			w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
			kubetest.Create(t, w.milan.Client().CoreV1().LimitRanges(twin), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}},
			}})
			within(t, longest, "pods there request more", func(ctx context.Context) error {
				pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: podSpec("sim/web:1")}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil && pod.Spec.Containers[0].Resources.Requests.Cpu().Value() != 9 {
					err = fmt.Errorf("not yet")
				}
				return err
			})
			w.creates(t, namespace, nil)
		},
		then: func(t *testing.T) { within(t, longest, "the pod runs", w.available("web", namespace, 1)) },
	})
	require.NoError(t, w.rome.Client().AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	within(t, longest, "no pod is left", lab.Number(pods, metav1.ListOptions{}, 0))
}

// testCommandRoles stops roles, and starts their processes when the Deployment asks for them again.
func testCommandRoles(t *testing.T, w *world) {
	w.mends(t, w.scaledToZero("webhook", &w.rome.Webhook))
	if *all {
		stopped := w.scaledToZero("controller", &w.rome.Controller)
		stopped.runbook, stopped.command = "LiqodNoActiveController", "kubectl -n liqod scale deployment/liqod-controller --replicas=1"
		w.mends(t, stopped)
	}
}

func (w *world) scaledToZero(role string, process **lab.Process) faultCase {
	name, before := "liqod-"+role, int32(1)
	return faultCase{
		name: role + "ScaledToZero", cause: []string{"role " + role + ": it is scaled to zero"},
		make: func(t *testing.T) {
			d := kubetest.Get(t, w.rome.Client().AppsV1().Deployments("liqod"), name)
			before = *d.Spec.Replicas
			w.scale(t, "liqod", name, 0)
			(*process).Kill()
		},
		then: func(t *testing.T) {
			within(t, longest, "the Deployment asks for a replica", w.deploymentIs(name, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 }))
			require.NoError(t, w.sites.Restart(process))
			w.scale(t, "liqod", name, before)
		},
	}
}

func (w *world) deploymentIs(name string, is func(*appsv1.Deployment) bool) func(context.Context) error {
	return lab.Is(w.rome.Client().AppsV1().Deployments("liqod"), name, is)
}

// mendsToken gives rome a token that milan does not know any more, and peers by what status says.
func (w *world) mendsToken(t *testing.T, args ...string) {
	t.Helper()
	token := w.token(t)
	w.revoke(t, token)
	w.mendsPeering(t, faultCase{
		name: "TokenRevoked", cause: []string{"identity: cluster milan refuses the token: "},
		runbook: "LiqodPeerNotAuthenticated", command: "liqod token create --for CLUSTER",
		make: func(t *testing.T) {
			require.NoError(t, w.says(w.rome, append([]string{"peer", "--token", token}, args...), 1, "get a new one (liqod token create)")(t.Context()))
		},
	})
}

// mendsNoProvider offloads a namespace while rome uses no provider, and peers by what status says.
func (w *world) mendsNoProvider(t *testing.T) {
	t.Helper()
	w.mendsPeering(t, faultCase{
		name: "NoProvider", cause: []string{"namespace shop: there is no virtual node: this cluster uses no provider"},
		make: func(t *testing.T) {
			require.NoError(t, w.says(w.rome, []string{"offload", "namespace", "shop", "--wait=false"}, 0)(t.Context()))
		},
	})
}

// mendsPeering makes a fault whose fix gives rome a virtual node of milan, and runs the vkubelet as its Deployment would.
func (w *world) mendsPeering(t *testing.T, fault faultCase) {
	t.Helper()
	vkubelet := make(chan error, 1)
	go func() { vkubelet <- w.rome.StartVKubelet(t.Context(), tenantOfMilan, "milan") }()
	w.mends(t, fault)
	require.NoError(t, <-vkubelet)
}
