package timed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	tenantOfMilan = "liqo-tenant-milan" // in rome
	shop          = "shop"              // the namespace that is offloaded
	remote        = "remote"            // the pod

	// commandTries is how often a command is run again that was killed or has failed.
	commandTries = 6
)

// step is a part of a peering. It ends when all that it causes exists, so that its failures do
// not show in the next step.
type step struct {
	name string
	run  func(*peering)
	// optional steps are left out of a run unless it has a fault in a step with needsOptional.
	optional, needsOptional bool
	// slow: the sample has a fault that pauses an API server, which takes long.
	slow bool
}

// peeringScenario is a way to peer and to end the peering.
type peeringScenario struct {
	name  string
	steps []step
	// cleanUp deletes all that a failed run has left.
	cleanUp func(*peering)
	// mutual: milan uses rome, too.
	mutual bool
}

func peeringScenarios() []peeringScenario {
	return []peeringScenario{
		{name: "ByCommands", steps: byCommands(), cleanUp: (*peering).endByCommands},
		{name: "ByResources", steps: byResources(), cleanUp: (*peering).deleteResources, mutual: true},
	}
}

// byCommands are the steps of a peering that commands make and end.
func byCommands() []step {
	return []step{
		{name: "a token is made", run: func(p *peering) { p.makeToken() }},
		{name: "the clusters are joined", run: (*peering).join, slow: true},
		{name: "the virtual node gets Ready", run: (*peering).getReady},
		{name: "a namespace is offloaded", run: (*peering).offload, optional: true, needsOptional: true},
		{name: "a pod runs", run: (*peering).runPod, optional: true, needsOptional: true},
		{name: "identity and capacity are renewed", run: (*peering).renew, optional: true, needsOptional: true},
		{name: "the consumer leaves", run: (*peering).leave, needsOptional: true, slow: true},
		{name: "the provider ends it", run: (*peering).dismiss, needsOptional: true},
	}
}

// peering is one run of a scenario. Its methods end the test if a step fails.
type peering struct {
	*peeringWorld
	t *testing.T // of the step

	token string
	// identity is rome's kubeconfig of milan. It must have no rights after the end.
	identity []byte
	// back is milan's kubeconfig of rome.
	back []byte
	// errors are what failed commands have printed.
	errors []string
}

// eventually waits until there is no error, or one that is accepted.
func (p *peering) eventually(what string, cond func(context.Context) error, accepted ...func(error) bool) {
	p.t.Helper()
	require.NoError(p.t, lab.Within(p.t.Context(), patience, func(ctx context.Context) error {
		err := cond(ctx)
		if slices.ContainsFunc(accepted, func(is func(error) bool) bool { return is(err) }) {
			return nil
		}
		return err
	}), what)
}

// tryCommand runs a command in a cluster, and returns its output and exit code, -1 if it was killed.
func (p *peering) tryCommand(s *site.Site, args ...string) (string, int) {
	p.t.Helper()
	process, err := p.startCommand(p.t.Context(), s, args)
	require.NoError(p.t, err)
	select {
	case <-process.Exited():
	case <-p.t.Context().Done():
		require.NoError(p.t, p.t.Context().Err())
	}
	out := strings.TrimSpace(process.Tail(1 << 20))
	if process.ExitCode() > 0 {
		require.NotEmpty(p.t, out, "liqod %s ended with code %d and printed no reason", args[0], process.ExitCode())
		p.errors = append(p.errors, out[strings.LastIndex(out, "\n")+1:])
	}
	return out, process.ExitCode()
}

// command runs a command again while it is killed or fails.
func (p *peering) command(s *site.Site, args ...string) string {
	p.t.Helper()
	printed := "it was killed"
	for range commandTries {
		out, code := p.tryCommand(s, args...)
		if code == 0 || args[0] == "unpeer" && strings.Contains(out, "there is no peer") { // the command that was killed had reached its end
			return out
		}
		if code > 0 {
			printed = out
		}
	}
	require.FailNow(p.t, fmt.Sprintf("liqod %s has failed %d times: %s", args[0], commandTries, printed))
	return ""
}

func (p *peering) makeToken(flags ...string) {
	out := p.command(p.Milan, append([]string{"token", "create"}, flags...)...)
	p.token = out[strings.LastIndex(out, "\n")+1:] // warnings of an API server come before
	require.True(p.t, strings.HasPrefix(p.token, "liqod1."), "this is no token: %q", out)
}

func (p *peering) join() {
	p.command(p.Rome, "peer", "--token", p.token, "--pod-cidr", p.Rome.Options.PodCIDR, "--cpu=10", "--memory=20Gi", "--wait=false")
	p.eventually("the clusters are joined", func(ctx context.Context) (err error) {
		p.identity, err = p.romeUses().established(ctx, "10")
		return err
	})
}

// established requires all objects of a use but the Node, with so many CPUs unless cpu is empty,
// and the conditions of both sides. It returns the consumer's identity.
func (u use) established(ctx context.Context, cpu string) ([]byte, error) {
	for s, conditions := range map[*site.Site][]string{
		u.consumer: {corev1beta1.ConditionReady, corev1beta1.ConditionAuthenticated, corev1beta1.ConditionAPIServer, corev1beta1.ConditionOutgoingPeering},
		u.provider: {corev1beta1.ConditionReady, corev1beta1.ConditionIncomingPeering},
	} {
		peer := map[*site.Site]string{u.consumer: u.provider.Name, u.provider: u.consumer.Name}[s]
		fc, err := s.Liqod().CoreV1beta1().ForeignClusters().Get(ctx, peer, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for _, c := range conditions {
			if !meta.IsStatusConditionTrue(fc.Status.Conditions, c) {
				return nil, fmt.Errorf("ForeignCluster %s: %s is not True: %+v", peer, c, fc.Status.Conditions)
			}
		}
	}
	identity, err := u.parts(ctx, cpu)
	if err != nil {
		return nil, err
	}
	request, err := u.consumer.Liqod().SharingV1alpha1().ResourceRequests(u.tenantAtConsumer()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if request.Status.Phase != sharingv1alpha1.RequestOffered {
		return nil, fmt.Errorf("the request of %s is %q", u.consumer.Name, request.Status.Phase)
	}
	offer, err := u.provider.Liqod().SharingV1alpha1().ResourceOffers(u.tenantAtProvider()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if offer.Status.Phase != sharingv1alpha1.OfferAccepted || offer.Status.ObservedGeneration != offer.Generation {
		return nil, fmt.Errorf("the offer in %s is %+v of generation %d", u.provider.Name, offer.Status, offer.Generation)
	}
	_, err = u.consumer.Client().AppsV1().Deployments(u.tenantAtConsumer()).Get(ctx, "vk-"+u.provider.Name, metav1.GetOptions{})
	return identity, err
}

// getReady runs the vkubelet as a kubelet would.
func (p *peering) getReady() {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	require.NoError(p.t, p.startVKubelet(ctx))
	require.NoError(p.t, p.Rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue))
	p.eventually("the VirtualNode is Ready", lab.Is(p.Rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", func(vn *offloadingv1beta1.VirtualNode) bool {
		return meta.IsStatusConditionTrue(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
	}))
}

func (p *peering) offload() {
	p.command(p.Rome, "offload", "namespace", shop, "--pod-offloading-strategy=Remote")
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	require.NoError(p.t, p.Rome.WaitOffloaded(ctx, shop, offloadingv1beta1.PhaseReady))
}

func (p *peering) runPod() {
	p.eventually("creating the pod", lab.Creates(p.Rome.Client().CoreV1().Pods(shop), bare(remote, corev1.RestartPolicyAlways)), apierrors.IsAlreadyExists) // the answer was late
	p.eventually("the pod runs in milan", lab.Is(p.Rome.Client().CoreV1().Pods(shop), remote, func(pod *corev1.Pod) bool {
		return running(pod) && pod.Spec.NodeName == "milan"
	}))
}

// renew peers with another token, and for more capacity.
func (p *peering) renew() {
	p.makeToken()
	p.command(p.Rome, "peer", "--token", p.token, "--cpu=11", "--memory=20Gi", "--wait=false")
	p.eventually("there are another identity and more capacity", func(ctx context.Context) error {
		identity, err := p.romeUses().established(ctx, "11")
		return lab.Wrong(err, string(identity) == string(p.identity), "the identity is the same")
	})
}

// leave ends the use of milan while the pod runs there.
func (p *peering) leave() {
	p.command(p.Rome, "unpeer", "milan", "--timeout=1m")
	p.endVKubelet()
	_, err := p.Rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(shop).Get(p.t.Context(), offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(p.t, err)
		p.command(p.Rome, "unoffload", "namespace", shop, "--timeout=1m")
	}
	require.NoError(p.t, p.Rome.Client().CoreV1().Pods(shop).DeleteCollection(p.t.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}))
	p.nothingLeft(p.Rome)
}

// dismiss ends the peering in milan.
func (p *peering) dismiss() {
	p.unpeerRome()
	p.powerless(p.Milan, p.identity)
}

// unpeerRome ends the peering in milan, and revokes the tokens that no cluster has used.
func (p *peering) unpeerRome() {
	p.command(p.Milan, "unpeer", "rome", "--timeout=1m")
	p.revokeTokens()
	p.nothingLeft(p.Milan)
}

// endByCommands ends the peering of a run that failed.
func (p *peering) endByCommands() {
	p.leave()
	p.unpeerRome()
}

// revokeTokens revokes all tokens: a token whose command was killed has not been printed, and a
// token by which an identity was renewed is not used up.
func (p *peering) revokeTokens() {
	for range commandTries {
		out := p.command(p.Milan, "token", "list", "-o", "json")
		var tokens []struct{ ID string }
		require.NoError(p.t, json.Unmarshal([]byte(out), &tokens), out)
		if len(tokens) == 0 {
			return
		}
		for _, token := range tokens {
			p.tryCommand(p.Milan, "token", "revoke", token.ID)
		}
	}
	require.FailNow(p.t, "tokens could not be revoked")
}

// powerless waits until the certificate of a kubeconfig has no rights in a cluster.
func (p *peering) powerless(s *site.Site, identity []byte) {
	config, err := clientcmd.RESTConfigFromKubeConfig(identity)
	require.NoError(p.t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(p.t, err)
	p.eventually("the identity has no rights in "+s.Name, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil
		}
		return fmt.Errorf("it was not refused: %w", err)
	})
}

// nothingLeft waits until a cluster has the same objects as before the run.
func (p *peering) nothingLeft(s *site.Site) {
	p.eventually("nothing is left in "+s.Name, func(ctx context.Context) error {
		have, err := s.Inventory(ctx)
		if err != nil {
			return err
		}
		return site.Changes(p.before[s], have)
	})
}

// peeringWorld is a world whose clusters peer again and again.
type peeringWorld struct {
	*world
	faults   *faults
	statuses []*statusWatch
	// before are the objects of the clusters between runs.
	before map[*site.Site][]string
	// kubeconfigs of commands, through the fronts, and commands as roles under test.
	kubeconfigs map[*site.Site]string
	commands    map[*site.Site]*role
}

func newPeeringWorld(from *world) (*peeringWorld, error) {
	w := &peeringWorld{world: from, before: map[*site.Site][]string{}, kubeconfigs: map[*site.Site]string{}, commands: map[*site.Site]*role{}}
	var err error
	if w.roles, err = newRoles(from, romeController, milanController); err != nil {
		return nil, err
	}
	for s, name := range map[*site.Site]string{w.Rome: romeCommand, w.Milan: milanCommand} {
		if w.kubeconfigs[s], err = s.ProxiedKubeconfig(); err != nil {
			return nil, err
		}
		w.commands[s] = newRole(from, name, new(*lab.Process))
		w.commands[s].start = func(**lab.Process) error { return nil } // peering.command starts the next one
		w.roles[name] = w.commands[s]
	}
	w.roles[vkubelet] = newRole(from, vkubelet, new(*lab.Process))
	w.faults = newFaults(from)
	return w, nil
}

// startCommand starts a command in a cluster.
func (w *peeringWorld) startCommand(ctx context.Context, s *site.Site, args []string) (*lab.Process, error) {
	cmd := w.Sites.Command(ctx, append(slices.Clone(args), "--kubeconfig", w.kubeconfigs[s])...)
	one := w.commands[s]
	one.mu.Lock()
	defer one.mu.Unlock()
	process, err := w.Sites.Lab.Process(lab.ProcessOptions{
		Name: fmt.Sprintf("%s-command-%d", s.Name, w.number.Add(1)), Path: cmd.Path, Args: cmd.Args[1:], Env: cmd.Env, MayExit: true,
	})
	*one.target = process
	return process, err
}

// startVKubelet starts the vkubelet as the first of its pod: it has no files of an earlier one.
func (w *peeringWorld) startVKubelet(ctx context.Context) error {
	if err := os.RemoveAll(filepath.Join(w.Rome.Dir, "pki-vk-milan")); err != nil {
		return err
	}
	one := w.roles[vkubelet]
	one.mu.Lock()
	defer one.mu.Unlock()
	if err := w.Rome.StartVKubelet(ctx, tenantOfMilan, "milan", one.podName()); err != nil {
		return err
	}
	*one.target = *w.Rome.VKubelet("milan")
	// A vkubelet that is started again while its rights are being deleted ends, as in a pod that is being deleted.
	(*one.target).Options.MayExit = true
	return nil
}

func (w *peeringWorld) endVKubelet() {
	one := w.roles[vkubelet]
	one.mu.Lock()
	defer one.mu.Unlock()
	if *one.target != nil {
		(*one.target).Kill()
	}
}

// recordInventory records the objects of the clusters when these change no more.
func (w *peeringWorld) recordInventory(ctx context.Context) error {
	for _, s := range []*site.Site{w.Rome, w.Milan} {
		have, err := s.AtRest(ctx)
		if err != nil {
			return err
		}
		w.before[s] = have
	}
	return nil
}
