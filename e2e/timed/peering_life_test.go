package timed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	tenantOfRome  = "liqo-tenant-rome"  // in milan
	shop          = "shop"              // the namespace that is offloaded
	away          = "away"              // the pod

	// asks is how often people ask again, after a command was killed or has said why not.
	asks = 6
)

// chapter is a part of the life of a peering. At its end all that it brings about is
// there, so that what went wrong in it is not taken for the next one's.
type chapter struct {
	name string
	play func(*peering) error
	// needless are chapters that a life may leave out, unless there is a blow in one that
	// needs all.
	needless, needsAll bool
	// slow: an API server is paused in the sample, too, which takes long.
	slow bool
}

// saga is a kind of life.
type saga struct {
	name     string
	chapters []chapter
	// clear takes away what a life that went wrong has left.
	clear func(*peering) error
	// mutual: milan uses rome, too.
	mutual bool
}

func sagas() []saga {
	return []saga{
		{name: "ByCommands", chapters: byCommands(), clear: (*peering).clear},
		{name: "ByResources", chapters: byResources(), clear: (*peering).clearResources, mutual: true},
	}
}

// byCommands are the chapters of a peering that commands make and end.
func byCommands() []chapter {
	return []chapter{
		{name: "a token is made", play: func(p *peering) error { return p.makeToken() }},
		{name: "the clusters are joined", play: (*peering).join, slow: true},
		{name: "the virtual node gets Ready", play: (*peering).getReady},
		{name: "a namespace is offloaded", play: (*peering).offload, needless: true, needsAll: true},
		{name: "a pod runs", play: (*peering).run, needless: true, needsAll: true},
		{name: "identity and capacity are renewed", play: (*peering).renew, needless: true, needsAll: true},
		{name: "the consumer leaves", play: (*peering).leave, needsAll: true, slow: true},
		{name: "the provider ends it", play: (*peering).dismiss, needsAll: true},
	}
}

// peering is one life.
type peering struct {
	*cast
	ctx context.Context

	token string
	// identity is rome's kubeconfig of milan; none of its successors may be of use after the end.
	identity []byte
	// back is milan's kubeconfig of rome.
	back []byte
	// said is what commands that failed gave as the reason.
	said []string
}

// eventually waits until there is no error, or one that is wanted.
func (p *peering) eventually(what string, cond func(context.Context) error, wanted ...func(error) bool) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	err := lab.Eventually(ctx, func(ctx context.Context) error {
		err := cond(ctx)
		if slices.ContainsFunc(wanted, func(is func(error) bool) bool { return is(err) }) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ask has a command run by the people of a cluster, and returns what it printed and its
// exit code, -1 if it was killed.
func (p *peering) ask(s *site.Site, args ...string) (string, int, error) {
	process, err := p.begin(p.ctx, s, args)
	if err != nil {
		return "", -1, err
	}
	select {
	case <-process.Exited():
	case <-p.ctx.Done():
		return "", -1, p.ctx.Err()
	}
	out := strings.TrimSpace(process.Tail(1 << 20))
	if code := process.ExitCode(); code > 0 {
		if out == "" {
			err = fmt.Errorf("liqod %s ended with code %d, and did not say why", args[0], code)
		}
		p.said = append(p.said, out[strings.LastIndex(out, "\n")+1:])
	}
	return out, process.ExitCode(), err
}

// command is ask by people who ask again when it was killed, or has said why not.
func (p *peering) command(s *site.Site, args ...string) (string, error) {
	said := "it was killed"
	for range asks {
		out, code, err := p.ask(s, args...)
		if err != nil || code == 0 {
			return out, err
		}
		if args[0] == "unpeer" && strings.Contains(out, "there is no peer") {
			return out, nil // the one that was killed had reached its end
		}
		if code > 0 {
			said = out
		}
	}
	return "", fmt.Errorf("asked %d times liqod %s does not do it: %s", asks, args[0], said)
}

func (p *peering) makeToken(flags ...string) error {
	out, err := p.command(p.milan, append([]string{"token", "create"}, flags...)...)
	if err != nil {
		return err
	}
	p.token = out[strings.LastIndex(out, "\n")+1:] // what an API server warns of comes before
	if !strings.HasPrefix(p.token, "liqod1.") {
		return fmt.Errorf("this is no token: %q", out)
	}
	return nil
}

func (p *peering) join() error {
	_, err := p.command(p.rome, "peer", "--token", p.token, "--pod-cidr", p.rome.Options.PodCIDR, "--cpu=10", "--memory=20Gi", "--wait=false")
	if err != nil {
		return err
	}
	return p.eventually("the clusters are joined", func(ctx context.Context) error {
		identity, err := p.romeUses().stands(ctx, "10")
		p.identity = identity
		return err
	})
}

// stands looks whether all of a use with so many CPUs, if that is said, is there, but for
// the Node, and known on both sides. It returns the consumer's identity.
func (u use) stands(ctx context.Context, cpu string) ([]byte, error) {
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
	identity, err := u.whole(ctx, cpu)
	if err != nil {
		return nil, err
	}
	request, err := u.consumer.Liqod().SharingV1alpha1().ResourceRequests(u.here()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if request.Status.Phase != sharingv1alpha1.RequestOffered {
		return nil, fmt.Errorf("the request of %s is %q", u.consumer.Name, request.Status.Phase)
	}
	told, err := u.provider.Liqod().SharingV1alpha1().ResourceOffers(u.there()).Get(ctx, u.provider.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if told.Status.Phase != sharingv1alpha1.OfferAccepted || told.Status.ObservedGeneration != told.Generation {
		return nil, fmt.Errorf("the offer in %s is %+v of generation %d", u.provider.Name, told.Status, told.Generation)
	}
	_, err = u.consumer.Client().AppsV1().Deployments(u.here()).Get(ctx, "vk-"+u.provider.Name, metav1.GetOptions{})
	return identity, err
}

// getReady runs the vkubelet as a kubelet would.
func (p *peering) getReady() error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := p.startVKubelet(ctx); err != nil {
		return err
	}
	if err := p.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue); err != nil {
		return err
	}
	return p.eventually("the VirtualNode is Ready", func(ctx context.Context) error {
		vn, err := p.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan).Get(ctx, "milan", metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady) {
			err = fmt.Errorf("it is %+v", vn.Status.Conditions)
		}
		return err
	})
}

func (p *peering) offload() error {
	if _, err := p.command(p.rome, "offload", "namespace", shop, "--pod-offloading-strategy=Remote"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return p.rome.WaitOffloaded(ctx, shop, offloadingv1beta1.PhaseReady)
}

func (p *peering) run() error {
	err := p.eventually("creating the pod", func(ctx context.Context) error {
		_, err := p.rome.Client().CoreV1().Pods(shop).Create(ctx, bare(away, corev1.RestartPolicyAlways), metav1.CreateOptions{})
		return err
	}, apierrors.IsAlreadyExists) // the answer was late
	if err != nil {
		return err
	}
	return p.eventually("the pod runs in milan", func(ctx context.Context) error {
		pod, err := p.rome.Client().CoreV1().Pods(shop).Get(ctx, away, metav1.GetOptions{})
		if err == nil && (!running(pod) || pod.Spec.NodeName != "milan") {
			err = fmt.Errorf("on node %q it is %s", pod.Spec.NodeName, summary(pod))
		}
		return err
	})
}

// renew peers with another token, and for more.
func (p *peering) renew() error {
	if err := p.makeToken(); err != nil {
		return err
	}
	_, err := p.command(p.rome, "peer", "--token", p.token, "--cpu=11", "--memory=20Gi", "--wait=false")
	if err != nil {
		return err
	}
	return p.eventually("there are another identity and more capacity", func(ctx context.Context) error {
		identity, err := p.romeUses().stands(ctx, "11")
		if err == nil && string(identity) == string(p.identity) {
			err = errors.New("the identity is the same")
		}
		return err
	})
}

// leave ends the use of milan while the pod runs there.
func (p *peering) leave() error {
	if _, err := p.command(p.rome, "unpeer", "milan", "--timeout=1m"); err != nil {
		return err
	}
	p.endVKubelet()
	_, err := p.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(shop).Get(p.ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
	if err == nil {
		_, err = p.command(p.rome, "unoffload", "namespace", shop, "--timeout=1m")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := p.rome.Client().CoreV1().Pods(shop).DeleteCollection(p.ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		return err
	}
	return p.nothingLeft(p.rome)
}

// dismiss ends what milan is for rome.
func (p *peering) dismiss() error {
	if err := p.part(); err != nil {
		return err
	}
	return p.powerless(p.milan, p.identity)
}

// part ends what milan is for rome, and the tokens that nobody has used.
func (p *peering) part() error {
	if _, err := p.command(p.milan, "unpeer", "rome", "--timeout=1m"); err != nil {
		return err
	}
	if err := p.revokeTokens(); err != nil {
		return err
	}
	return p.nothingLeft(p.milan)
}

// revokeTokens: a token whose command was killed has been shown to nobody, and one by which
// an identity was renewed is not used up.
func (p *peering) revokeTokens() error {
	for range asks {
		out, err := p.command(p.milan, "token", "list", "-o", "json")
		if err != nil {
			return err
		}
		var tokens []struct{ ID string }
		if err := json.Unmarshal([]byte(out), &tokens); err != nil {
			return fmt.Errorf("reading the tokens: %w\n%s", err, out)
		}
		if len(tokens) == 0 {
			return nil
		}
		for _, token := range tokens {
			if _, _, err := p.ask(p.milan, "token", "revoke", token.ID); err != nil {
				return err
			}
		}
	}
	return errors.New("tokens are not to be revoked")
}

// powerless waits until the certificate of a kubeconfig has no rights in a cluster.
func (p *peering) powerless(s *site.Site, identity []byte) error {
	config, err := clientcmd.RESTConfigFromKubeConfig(identity)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return p.eventually("the identity is of no use in "+s.Name, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil
		}
		return fmt.Errorf("it was not refused: %w", err)
	})
}

// clear ends a peering that went wrong.
func (p *peering) clear() error {
	if err := p.leave(); err != nil {
		return err
	}
	return p.part()
}

// nothingLeft waits until a cluster is as it was before the life.
func (p *peering) nothingLeft(s *site.Site) error {
	return p.eventually("nothing is left in "+s.Name, func(ctx context.Context) error {
		have, err := s.Inventory(ctx)
		if err != nil {
			return err
		}
		return site.Changes(p.before[s], have)
	})
}

// cast is a world whose clusters become peers and part again and again, and who acts there.
type cast struct {
	*world
	theatre   *theatre
	witnesses []*witness
	// before is what is in the clusters between lives.
	before map[*site.Site][]string
	// kubeconfigs of the people, through the fronts, and the roles that their commands are.
	kubeconfigs map[*site.Site]string
	commands    map[*site.Site]*role
}

func newCast(w *world) (*cast, error) {
	c := &cast{world: w, before: map[*site.Site][]string{}, kubeconfigs: map[*site.Site]string{}, commands: map[*site.Site]*role{}}
	var err error
	if w.roles, err = newRoles(w, romeController, milanController); err != nil {
		return nil, err
	}
	for s, name := range map[*site.Site]string{w.rome: romeCommand, w.milan: milanCommand} {
		if c.kubeconfigs[s], err = s.ProxiedKubeconfig(); err != nil {
			return nil, err
		}
		c.commands[s] = newRole(w, name, new(*lab.Process))
		c.commands[s].restart = func(**lab.Process) error { return nil } // people ask again
		w.roles.byName[name] = c.commands[s]
	}
	w.roles.byName[vkubelet] = newRole(w, vkubelet, new(*lab.Process))
	c.theatre = newTheatre(w)
	return c, nil
}

// begin starts a command of the people of a cluster.
func (c *cast) begin(ctx context.Context, s *site.Site, args []string) (*lab.Process, error) {
	cmd := c.sites.Command(ctx, append(slices.Clone(args), "--kubeconfig", c.kubeconfigs[s])...)
	one := c.commands[s]
	one.mu.Lock()
	defer one.mu.Unlock()
	process, err := c.sites.Lab.Process(lab.ProcessOptions{
		Name: fmt.Sprintf("%s-command-%d", s.Name, c.number.Add(1)), Path: cmd.Path, Args: cmd.Args[1:], Env: cmd.Env, MayExit: true,
	})
	*one.target = process
	return process, err
}

// startVKubelet starts the vkubelet as the first of its pod: nothing is kept of one before.
func (c *cast) startVKubelet(ctx context.Context) error {
	if err := os.RemoveAll(filepath.Join(c.rome.Dir, "pki-vk-milan")); err != nil {
		return err
	}
	one := c.roles.byName[vkubelet]
	one.mu.Lock()
	defer one.mu.Unlock()
	if err := c.rome.StartVKubelet(ctx, tenantOfMilan, "milan", one.podName()); err != nil {
		return err
	}
	*one.target = *c.rome.VKubelet("milan")
	// One that is started again while its rights are going ends, as in a pod that is going.
	(*one.target).Options.MayExit = true
	return nil
}

func (c *cast) endVKubelet() {
	one := c.roles.byName[vkubelet]
	one.mu.Lock()
	defer one.mu.Unlock()
	if *one.target != nil {
		(*one.target).Kill()
	}
}

// rest notes what is in the clusters when they have come to rest.
func (c *cast) rest(ctx context.Context) error {
	for _, s := range []*site.Site{c.rome, c.milan} {
		have, err := s.AtRest(ctx)
		if err != nil {
			return err
		}
		c.before[s] = have
	}
	return nil
}
