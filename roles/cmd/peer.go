package cmd

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

// peering has the flags of peer.
type peering struct {
	join.Invitation
	// asked is the Request, unless it is empty. amounts are the quantities in it, as given.
	asked   corev1beta1.CapacityRequest
	amounts map[corev1.ResourceName]*string
}

// ask adds the flags for the requested amounts, and for the token and the name of the other cluster.
func (p *peering) ask(flags *pflag.FlagSet) {
	p.amounts = map[corev1.ResourceName]*string{}
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		p.amounts[r] = flags.String(string(r), "", fmt.Sprintf("`quantity` of %s that is asked for", r))
	}
	flags.StringVar(&p.Token, "token", "", "`token` of the other cluster; - reads it from the standard input")
	flags.StringVar(&p.Name, "name", "", "`name` of the other cluster for people")
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
	p := peering{}
	cmd := &cobra.Command{Use: "peer", Short: "Use the capacity of another cluster", Args: noArguments}
	flags := cmd.Flags()
	local, remote := c.connection(flags), c.other(flags)
	p.ask(flags)
	flags.BoolVar(&p.BothWays, "both-ways", false, "the other cluster is offered an identity in this one in return")
	flags.StringSliceVar(&p.AddressRanges, "pod-cidr", nil, "`range` of this cluster's pods: only endpoints inside of it are shown to the provider's pods; may be repeated")
	flags.StringSliceVar(&p.asked.StorageClasses, "storage-class", nil, "`name` of a storage class of the provider that may be used; the first is the default; may be repeated")
	flags.StringSliceVar(&p.asked.IngressClasses, "ingress-class", nil, "`name` of an ingress class, likewise")
	flags.StringSliceVar(&p.asked.LoadBalancerClasses, "load-balancer-class", nil, "`name` of a load balancer class, likewise")
	wait, timeout := addWait(flags, 2*time.Minute, "until the virtual node is ready")
	cmd.RunE = interruptible(limited(timeout, func(cmd *cobra.Command, _ []string) error {
		if remote.given() == (p.Token != "") {
			return Usagef("peer needs the other cluster, by --token, or by --remote-kubeconfig, --remote-context or both")
		}
		if err := p.check(); err != nil {
			return err
		}
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		here, err := c.side(ctx, local)
		if err != nil {
			return err
		}
		if p.Token == "" {
			p.Token, err = c.tokenFrom(ctx, remote, here, p.BothWays)
		} else {
			p.Token, err = readToken(p.Token, cmd.InOrStdin())
		}
		if err != nil {
			return err
		}
		return c.peerByToken(ctx, p.Invitation, here, *wait, out)
	}))
	return cmd
}

// tokenFrom makes a token in the other cluster, which only this cluster may use.
func (c *commands) tokenFrom(ctx context.Context, remote *connection, here *side, bothWays bool) (string, error) {
	there, err := c.side(ctx, remote)
	if err != nil {
		return "", err
	}
	if here.ID == there.ID {
		return "", fmt.Errorf("both kubeconfigs lead to cluster %s, and a cluster cannot be a peer of itself: select the other cluster with %s, and this one with %s", here.ID, remoteFlags, localFlags)
	}
	wish := tokenWish{ttl: tokenLife, uses: 1, forID: here.ID, bothWays: bothWays}
	view, err := wish.create(ctx, there.to)
	return view.Token, there.at(err)
}

// side is a cluster with liqod in it.
type side struct {
	join.Cluster
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
	id, namespace, err := join.Installed(ctx, to.kube)
	if err != nil {
		return nil, explainFor(fmt.Errorf("%s: %w", to.server, err), conn.flags)
	}
	return &side{Cluster: join.Cluster{ID: id, Namespace: namespace, Kube: to.kube, Liqo: to.liqo}, to: to, flags: conn.flags}, nil
}

// check validates the flags before the first request, and sets the Request.
func (p *peering) check() error {
	p.asked.Resources = corev1.ResourceList{}
	for name, text := range p.amounts {
		if *text == "" {
			continue
		}
		q, err := resource.ParseQuantity(*text)
		if err != nil || q.Sign() < 0 {
			return Usagef("--%s=%s is no quantity: 4, 500m or 16Gi are", name, *text)
		}
		p.asked.Resources[name] = q
	}
	for _, text := range p.AddressRanges {
		if r, err := netip.ParsePrefix(text); err != nil || r.Masked() != r {
			return Usagef("--pod-cidr=%s: a range without host bits is accepted, as 10.42.0.0/16", text)
		}
	}
	if len(p.asked.Resources)+len(p.asked.StorageClasses)+len(p.asked.IngressClasses)+len(p.asked.LoadBalancerClasses) > 0 {
		p.Request = &p.asked
	}
	return nil
}

func (c *commands) unpeer() *cobra.Command {
	cmd := &cobra.Command{Use: "unpeer PEER", Short: "End what a peer is for this cluster", Args: oneName("peer")}
	local, remote := c.connection(cmd.Flags()), c.other(cmd.Flags())
	timeout := addTimeout(cmd.Flags(), 10*time.Minute)
	force := cmd.Flags().Bool("force", false, "the peer is gone for ever: do not wait for what it runs")
	cmd.ValidArgsFunction = c.completer(local, 1, peerNames)
	cmd.RunE = interruptible(limited(timeout, func(cmd *cobra.Command, args []string) error {
		if *force && remote.given() {
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
		if *force {
			if err := c.confirmAway(ctx, here, args[0], out); err != nil {
				return explain(err)
			}
		}
		return explain(c.separate(ctx, here, there, args[0], *force, out))
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
	peers, err := peerNames(ctx, here.to)
	if err != nil {
		return fmt.Errorf("listing ForeignClusters: %w", err)
	}
	if slices.Contains(peers, id) {
		return nil
	}
	if found, err := here.remains(ctx, id); found || err != nil {
		return err
	}
	if there != nil {
		if found, err := there.remains(ctx, here.ID); found || err != nil {
			return err
		}
	}
	return report.NoPeer(id, peers)
}

// remains reports whether a cluster has objects of a peering with the cluster id: a
// ForeignCluster or a tenant namespace.
func (s *side) remains(ctx context.Context, id string) (bool, error) {
	fc, err := store.Live(ctx, "ForeignCluster", s.Liqo.CoreV1beta1().ForeignClusters(), id)
	if fc != nil || err != nil {
		return fc != nil, s.at(err)
	}
	tenant, err := store.Live(ctx, "namespace", s.Kube.CoreV1().Namespaces(), corev1beta1.TenantNamespace(id))
	return tenant != nil, s.at(err)
}

// separate ends a peering. It first removes the objects that each side has in the other, while
// the rights for that still exist, and then the rights. there is nil if the command has no kubeconfig of the peer.
func (c *commands) separate(ctx context.Context, here, there *side, peer string, force bool, out io.Writer) error {
	type step struct {
		at   *side
		next func(context.Context) ([]string, error)
	}
	steps := slices.DeleteFunc([]step{
		{here, func(ctx context.Context) ([]string, error) { return here.Leave(ctx, peer, force) }},
		{there, func(ctx context.Context) ([]string, error) { return there.Leave(ctx, here.ID, false) }},
		{here, func(ctx context.Context) ([]string, error) { return here.Dismiss(ctx, peer) }},
		{there, func(ctx context.Context) ([]string, error) { return there.Dismiss(ctx, here.ID) }},
	}, func(s step) bool { return s.at == nil })
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
	if silent != nil {
		last.summary = fmt.Sprintf("Cluster %s at %s has not answered (%s)", silent.ID, silent.to.server, silent.flags)
	}
	err = last.outcome(err, "the peering with cluster "+peer+" has not ended", "ask again to go on. Left")
	switch {
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
		if object, waits, told := strings.Cut(what, ": "); told {
			lines[cluster+": "+object] = waits
		} else {
			lines[cluster+": "+what+" is being removed"] = ""
		}
	}
	return lines
}

// generate is the parent of the commands that print YAML instead of writing objects.
func (c *commands) generate() *cobra.Command {
	return parent("generate", "Print objects instead of writing them, for GitOps", c.generatePeering())
}

func (c *commands) generatePeering() *cobra.Command {
	p := peering{}
	cmd := &cobra.Command{Use: "peering", Short: "Print the objects with which this cluster uses another one", Args: noArguments}
	flags := cmd.Flags()
	namespace := flags.StringP("namespace", "n", usualNamespace, "`namespace` that liqod is installed in")
	consumer := flags.String("for", "", "print the objects for the other cluster, which the cluster with this `id` will use")
	p.ask(flags)
	flags.StringSliceVar(&p.AddressRanges, "pod-cidr", nil, "`range` of this cluster's pods, if it is not the configured one; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.Token == "" {
			return Usagef("generate peering needs --token: liqod token create prints one, in the other cluster")
		}
		if err := p.check(); err != nil {
			return err
		}
		var err error
		if p.Token, err = readToken(p.Token, cmd.InOrStdin()); err != nil {
			return err
		}
		half := p.Objects
		if cmd.Flags().Changed("for") {
			if p.Request != nil {
				return Usagef("--cpu, --memory and --pods are what a cluster asks for: they are of no use with --for")
			}
			half = func(namespace string) (*corev1.Secret, *corev1beta1.ForeignCluster, error) {
				return p.Counterpart(*consumer, namespace)
			}
		}
		secret, fc, err := half(*namespace)
		if err != nil {
			return UsageError(err)
		}
		for _, obj := range []runtime.Object{secret, fc} {
			if err := errors.Join(say(cmd.OutOrStdout(), "---"), printObject(cmd.OutOrStdout(), asYAML, obj)); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
