package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/manual"
	"github.com/liqod/liqod/peering/offer"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

const peerAbout = `Peer lets this cluster use the capacity of another one, in which liqod is installed too.

With --token, liqod gets an identity in the other cluster, requests capacity, and creates a
virtual node for the offer. An administrator of the other cluster prints the token with
liqod token create. --cpu, --memory and --pods are the requested capacity; the other cluster
chooses the amounts that are not given. Nobody needs access to both clusters.

With the other cluster's kubeconfig, the command creates an identity for this cluster there,
and the credentials and a virtual node here. The identity has rights only to objects that
this cluster will offload. Both kubeconfigs need the rights of an administrator, and only
this command uses them. --cpu, --memory and --pods are the capacity of the virtual node. The
default is 90 % of the free capacity of the provider's nodes now, which is not guaranteed.

A second run changes nothing that is right, and completes an interrupted one. For a peering
in both directions, run the command in both clusters; or run it in one, with a token that was
made with --both-ways, and with --both-ways.`

const peerExamples = `  %[1]s peer --token=liqod1.eyJp... --cpu=8 --memory=16Gi
  %[1]s peer --remote-kubeconfig=milan.kubeconfig --pod-cidr=10.42.0.0/16
  %[1]s peer --remote-context=milan --cpu=8 --memory=16Gi --pods=100 --storage-class=fast`

// sharePercent is the default share of the free capacity that a virtual node shows.
const sharePercent = 90

// peering has the flags of peer.
type peering struct {
	node, server           string
	token, name            string
	podRanges              []string
	amounts                map[corev1.ResourceName]*string
	storage, ingress, load []string
	bothWays, wait         bool
	timeout                time.Duration
}

// other adds the flags that select the other cluster.
func (c *commands) other(flags *pflag.FlagSet) *connection {
	conn := c.newConnection()
	conn.flags = remoteFlags
	flags.StringVar(&conn.kubeconfig, "remote-kubeconfig", "", "`file` with the way to the other cluster; else KUBECONFIG, else ~/.kube/config")
	flags.StringVar(&conn.overrides.CurrentContext, "remote-context", "", "`name` of the other cluster's context; else its kubeconfig's current one")
	return conn
}

func (c *connection) given() bool { return c.kubeconfig != "" || c.overrides.CurrentContext != "" }

func (c *commands) peer() *cobra.Command {
	p := peering{amounts: map[corev1.ResourceName]*string{}}
	cmd := &cobra.Command{
		Use: "peer", Short: "Use the capacity of another cluster", Long: peerAbout, Example: c.example(peerExamples), Args: noArguments,
	}
	flags := cmd.Flags()
	local, remote := c.connection(flags), c.other(flags)
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		p.amounts[r] = flags.String(string(r), "", fmt.Sprintf("`quantity` of %s that the virtual node shows", r))
	}
	flags.StringVar(&p.token, "token", "", "`token` of the other cluster; - reads it from the standard input")
	flags.BoolVar(&p.bothWays, "both-ways", false, "with --token: the other cluster is offered an identity in this one in return")
	flags.StringVar(&p.name, "name", "", "`name` of the other cluster for people, with --token")
	flags.StringVar(&p.node, "node", "", "`name` of the virtual node; else the id of the provider")
	flags.StringVar(&p.server, "server-url", "", "`URL` of the provider's API server as this cluster reaches it; else that of its kubeconfig")
	flags.StringSliceVar(&p.podRanges, "pod-cidr", nil, "`range` of this cluster's pods: only endpoints inside of it are shown to the provider's pods; may be repeated")
	flags.StringSliceVar(&p.storage, "storage-class", nil, "`name` of a storage class of the provider that may be used; the first is the default; may be repeated")
	flags.StringSliceVar(&p.ingress, "ingress-class", nil, "`name` of an ingress class, likewise")
	flags.StringSliceVar(&p.load, "load-balancer-class", nil, "`name` of a load balancer class, likewise")
	addWait(flags, &p.wait, &p.timeout, 2*time.Minute, "until the virtual node is ready")
	cmd.RunE = interruptible(limited(&p.timeout, func(cmd *cobra.Command, _ []string) error {
		if remote.given() == (p.token != "") {
			return Usagef("peer needs the other cluster, by --token, or by --remote-kubeconfig, --remote-context or both")
		}
		if p.bothWays && p.token == "" {
			return Usagef("--both-ways is for --token: with both kubeconfigs, call it from both sides")
		}
		amounts, err := p.check()
		if err != nil {
			return err
		}
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		if p.token != "" {
			return c.peerByToken(ctx, &p, amounts, local, cmd.InOrStdin(), out)
		}
		here, err := c.side(ctx, local)
		if err != nil {
			return err
		}
		there, err := c.side(ctx, remote)
		if err != nil {
			return err
		}
		if here.ID == there.ID {
			return fmt.Errorf("both kubeconfigs lead to cluster %s, and a cluster cannot be a peer of itself: select the other cluster with %s, and this one with %s", here.ID, remoteFlags, localFlags)
		}
		namespace, err := p.enroll(ctx, here, there, amounts, out)
		if err != nil || !p.wait {
			return explain(err)
		}
		return explain(c.untilPeered(ctx, here, namespace, p.node, out))
	}))
	return cmd
}

// side is a cluster with liqod in it.
type side struct {
	manual.Cluster
	to *clients
	// flags are the names of the flags that select the cluster.
	flags string
}

// at adds the cluster to an error, and a solution.
func (s *side) at(err error) error {
	if err == nil {
		return nil
	}
	return explainFor(fmt.Errorf("in cluster %s: %w", s.ID, err), s.flags)
}

func (c *commands) side(ctx context.Context, conn *connection) (*side, error) {
	to, err := c.connect(conn)
	if err != nil {
		return nil, err
	}
	id, namespace, err := manual.Installed(ctx, to.kube)
	if err != nil {
		return nil, explainFor(fmt.Errorf("%s: %w", to.server, err), conn.flags)
	}
	return &side{Cluster: manual.Cluster{ID: id, Namespace: namespace, Kube: to.kube, Liqo: to.liqo}, to: to, flags: conn.flags}, nil
}

// check validates the flags before the first request, and returns the given amounts.
func (p *peering) check() (corev1.ResourceList, error) {
	amounts := corev1.ResourceList{}
	for name, text := range p.amounts {
		if *text == "" {
			continue
		}
		q, err := resource.ParseQuantity(*text)
		if err != nil || q.Sign() < 0 {
			return nil, Usagef("--%s=%s is no quantity: 4, 500m or 16Gi are", name, *text)
		}
		amounts[name] = q
	}
	for _, text := range p.podRanges {
		if r, err := netip.ParsePrefix(text); err != nil || r.Masked() != r {
			return nil, Usagef("--pod-cidr=%s: a range without host bits is accepted, as 10.42.0.0/16", text)
		}
	}
	if p.server != "" {
		if u, err := url.Parse(p.server); err != nil || u.Scheme != "https" || u.Host == "" {
			return nil, Usagef("--server-url=%s: an https URL is accepted, as https://milan.example:6443", p.server)
		}
	}
	return amounts, nil
}

// enroll makes the peering, and returns the tenant namespace of the provider here.
func (p *peering) enroll(ctx context.Context, here, there *side, amounts corev1.ResourceList, out io.Writer) (string, error) {
	server := p.server
	if server == "" {
		server = there.to.server
		if u, err := url.Parse(server); err == nil && loopback(u.Hostname()) {
			return "", fmt.Errorf("the kubeconfig of cluster %s leads to %s, which only this machine reaches: say with --server-url how cluster %s reaches it", there.ID, server, here.ID)
		}
	}
	if p.node == "" {
		p.node = there.ID
	}
	resources, err := free(ctx, there, amounts)
	if err != nil {
		return "", there.at(err)
	}
	var ranges []string // nil keeps the ranges that were granted before
	if len(p.podRanges) > 0 {
		ranges = p.podRanges
	}
	cred, err := there.Admit(ctx, manual.Admission{Consumer: here.ID, AddressRanges: ranges})
	if err != nil {
		return "", there.at(err)
	}
	if err := say(out, "%s: cluster %s may use it, as user %s", there.ID, here.ID, cred.User); err != nil {
		return "", err
	}
	kubeconfig, err := manual.Kubeconfig(there.ID, server, there.to.ca, cred)
	if err != nil {
		return "", err
	}
	err = here.Join(ctx, manual.Offer{
		Provider: there.ID, Node: p.node, Kubeconfig: kubeconfig, Resources: resources,
		StorageClasses: p.storage, IngressClasses: p.ingress, LoadBalancerClasses: p.load,
	})
	if err != nil {
		return "", here.at(err)
	}
	if len(p.podRanges) == 0 {
		err = say(out, "note: without --pod-cidr the provider's pods are shown no endpoints of this cluster's Services, unless a range was granted before")
	}
	return corev1beta1.TenantNamespace(there.ID), errors.Join(err, say(out, "%s: virtual node %s is asked for, with %s CPUs, %s of memory and %s pods",
		here.ID, p.node, resources.Cpu(), resources.Memory(), resources.Pods()))
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (a.IsLoopback() || a.IsUnspecified())
}

// free adds the free capacity of a provider for the amounts that were not given.
func free(ctx context.Context, there *side, amounts corev1.ResourceList) (corev1.ResourceList, error) {
	nodes, err := there.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	pods, err := there.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	out := offer.Free(nodes.Items, pods.Items, sharePercent)
	for name, amount := range amounts {
		out[name] = amount
	}
	return out, nil
}

// untilPeered waits until a virtual node is ready.
func (c *commands) untilPeered(ctx context.Context, here *side, namespace, node string, out io.Writer) error {
	last, err := c.until(ctx, out, func(ctx context.Context) (look, error) {
		vn, err := here.Liqo.OffloadingV1beta1().VirtualNodes(namespace).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return look{}, err
		}
		ready := meta.FindStatusCondition(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
		if ready == nil {
			return look{lines: map[string]string{"": "waiting for liqod's controller to process it (if that takes long: " + c.program + " check)"}}, nil
		}
		return look{lines: map[string]string{"virtual node " + node: ready.Message}, done: ready.Status == metav1.ConditionTrue}, nil
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("virtual node %s is not ready, %w; what was asked for stands: %s", node, err, missing(last, ""))
	}
	return err
}

const unpeerAbout = `Unpeer ends both directions of a peering in this cluster. The virtual nodes of the peer are
drained and deleted, with the credentials. The peer loses its rights here at once, and its
objects here are deleted. With --remote-kubeconfig or --remote-context, the command does the
same in the peer.

The drain of a virtual node takes at most the configured time (controller.drainTimeout,
drainForceAfter), even if the peer never comes back. With --force, the pods are removed at
once, without waiting for the peer; the peer must be unreachable then. Data in volumes is
kept. If the wait ends early, run the command again: it continues.`

const unpeerExamples = `  %[1]s unpeer milan --remote-kubeconfig=milan.kubeconfig
  %[1]s unpeer milan --timeout=10m`

func (c *commands) unpeer() *cobra.Command {
	var timeout time.Duration
	var force bool
	cmd := &cobra.Command{
		Use: "unpeer PEER", Short: "End what a peer is for this cluster", Long: unpeerAbout, Example: c.example(unpeerExamples), Args: oneName("peer"),
	}
	local, remote := c.connection(cmd.Flags()), c.other(cmd.Flags())
	addTimeout(cmd.Flags(), &timeout, 10*time.Minute)
	cmd.Flags().BoolVar(&force, "force", false, "the peer is gone for ever: do not wait for what it runs")
	cmd.ValidArgsFunction = c.completer(local, peerNames)
	cmd.RunE = interruptible(limited(&timeout, func(cmd *cobra.Command, args []string) error {
		if force && remote.given() {
			return Usagef("--force is for a peer that is gone: leave out the way to it")
		}
		// What the API server warns about is what the command is for.
		local.warnings, remote.warnings = io.Discard, io.Discard
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		here, err := c.side(ctx, local)
		if err != nil {
			return err
		}
		var there *side
		if remote.given() {
			if there, err = c.side(ctx, remote); err != nil {
				return err
			}
			if there.ID != args[0] {
				return Usagef("the other cluster is %s, and not %s (%s)", there.ID, args[0], remoteFlags)
			}
		}
		if err := c.isPeer(ctx, here, there, args[0]); err != nil {
			return explain(err)
		}
		if force {
			if err := c.confirmAway(ctx, here, args[0], out); err != nil {
				return explain(err)
			}
		}
		return explain(c.part(ctx, parting{here, there, args[0], force}, out))
	}))
	return cmd
}

// isPeer returns an error if nothing in this cluster or in the other one belongs to a peering
// with the peer id. there is nil if the command has no kubeconfig of the peer. The rest of a
// peering whose end was interrupted counts.
func (c *commands) isPeer(ctx context.Context, here, there *side, id string) error {
	if id == here.ID {
		return Usagef("this is cluster %s: a cluster cannot be a peer of itself", id)
	}
	if err := trust.CheckClusterID(id); err != nil {
		return UsageError(err)
	}
	fcs, err := here.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ForeignClusters: %w", err)
	}
	var peers []string
	for i := range fcs.Items {
		if fcs.Items[i].Name == id {
			return nil
		}
		peers = append(peers, fcs.Items[i].Name)
	}
	if found, err := here.remains(ctx, id); found || err != nil {
		return err
	}
	if there != nil {
		if found, err := there.remains(ctx, here.ID); found || err != nil {
			return err
		}
	}
	return noSuchPeer(id, here.ID, peers)
}

// remains reports whether a cluster has objects of a peering with the cluster id: a
// ForeignCluster or a tenant namespace.
func (s *side) remains(ctx context.Context, id string) (bool, error) {
	fc, err := store.OrNil(s.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, id, metav1.GetOptions{}))
	if err != nil {
		return false, s.at(fmt.Errorf("reading ForeignCluster %s: %w", id, err))
	}
	if fc != nil {
		return true, nil
	}
	name := corev1beta1.TenantNamespace(id)
	_, err = s.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, s.at(fmt.Errorf("reading namespace %s: %w", name, err))
	}
	return true, nil
}

// noSuchPeer is the error for a peer that a cluster does not have, with the peers that it has.
func noSuchPeer(id, cluster string, peers []string) error {
	if len(peers) == 0 {
		return fmt.Errorf("there is no peer %q: cluster %s has none", id, cluster)
	}
	slices.Sort(peers)
	return fmt.Errorf("there is no peer %q in cluster %s: %s", id, cluster, report.Listed("the only peer is", "the peers are", slices.Compact(peers)))
}

// parting is the end of a peering. there is nil if the command has no kubeconfig of the peer.
type parting struct {
	here, there *side
	peer        string
	force       bool
}

// part ends a peering. It first removes the objects that each side has in the other, while
// the rights for that still exist, and then the rights.
func (c *commands) part(ctx context.Context, p parting, out io.Writer) error {
	here, there, peer := p.here, p.there, p.peer
	type step struct {
		at   *side
		next func(context.Context) ([]string, error)
	}
	steps := []step{{here, func(ctx context.Context) ([]string, error) { return here.Leave(ctx, peer, p.force) }}}
	if there != nil {
		steps = append(steps, step{there, func(ctx context.Context) ([]string, error) { return there.Leave(ctx, here.ID, false) }})
	}
	steps = append(steps, step{here, func(ctx context.Context) ([]string, error) { return here.Dismiss(ctx, peer) }})
	if there != nil {
		steps = append(steps, step{there, func(ctx context.Context) ([]string, error) { return there.Dismiss(ctx, here.ID) }})
	}
	silent := here // nil once the cluster of the present step has answered
	last, err := c.until(ctx, out, func(ctx context.Context) (look, error) {
		for len(steps) > 0 {
			silent = steps[0].at
			left, err := steps[0].next(ctx)
			if err != nil {
				return look{}, steps[0].at.at(err)
			}
			silent = nil
			if len(left) > 0 {
				return look{lines: leaving(steps[0].at.ID, left)}, nil
			}
			steps = steps[1:]
		}
		return look{done: true}, nil
	})
	switch {
	case errors.Is(err, errTimeout) && silent != nil:
		return fmt.Errorf("the peering with cluster %s has not ended, %w; ask again to go on. Cluster %s at %s has not answered (%s)", peer, err, silent.ID, silent.to.server, silent.flags)
	case errors.Is(err, errTimeout):
		return fmt.Errorf("the peering with cluster %s has not ended, %w; ask again to go on. Left: %s", peer, err, missing(last, ""))
	case err != nil:
		return err
	case there == nil:
		return say(out, "%s: nothing of the peering with cluster %s is left, but data in volumes is kept (%s storage list); in that cluster, its people end the other half: %s unpeer %s",
			here.ID, peer, c.program, c.program, here.ID)
	}
	return say(out, "nothing of the peering of %s and %s is left, but data in volumes is kept: %s storage list", here.ID, peer, c.program)
}

// leaving returns the lines about the objects that are left in a cluster. Some of the
// objects say themselves what they wait for.
func leaving(cluster string, left []string) map[string]string {
	lines := map[string]string{}
	for _, what := range left {
		object, waits, told := strings.Cut(what, ": ")
		if !told {
			waits = "is being removed"
			lines[cluster+": "+object+" "+waits] = ""
			continue
		}
		lines[cluster+": "+object] = waits
	}
	return lines
}
