package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

// authService is the chart's Service that leads to the authentication endpoint.
const authService = "liqod-auth"

// tokenLife is the time for which a token is good, unless people say otherwise.
const tokenLife = 15 * time.Minute

// tokenKept is the time for which an expired token is listed.
const tokenKept = 24 * time.Hour

// opened says what a token with --trust Organisation opens; docs/security.md has the table.
const opened = `Trust Organisation opens these for the cluster that uses the token, where no setting of this cluster says otherwise:
  pods with every type of volume but hostPath, flexVolume and gitRepo, with nearly every toleration, on nodes by every label that names no single node
  namespaces of every name that is not reserved, Services with node ports and of type ExternalName, all labels and annotations, connections to every pod of this cluster`

// closed says what a token without it leaves out; docs/security.md has the table.
const closed = "Left out of what comes from the cluster that uses the token, where no setting of this cluster says otherwise: " + report.StrictLeavesOut +
	"\nFor a cluster of your own organisation, --trust=Organisation opens these."

// tokenWish has the flags of token create.
type tokenWish struct {
	ttl                time.Duration
	uses               int
	forID, url, output string
	trust              string
	bothWays           bool
}

// tokenView is a token as commands print it.
type tokenView struct {
	ID string `json:"id"`
	// Token is set only in the output of token create.
	Token      string   `json:"token,omitempty"`
	URL        string   `json:"url,omitempty"`
	For        string   `json:"for,omitempty"`
	Trust      string   `json:"trust,omitempty"`
	Uses       int      `json:"uses"`
	UsedBy     []string `json:"usedBy,omitempty"`
	Expiration string   `json:"expiration,omitempty"`
	State      string   `json:"state"`

	age string
}

func (c *commands) token() *cobra.Command {
	return parent("token", "Tokens by which other clusters become peers of this one", c.tokenCreate(), c.tokenList(), c.tokenRevoke())
}

func (c *commands) tokenCreate() *cobra.Command {
	w := tokenWish{ttl: tokenLife, uses: 1}
	cmd := &cobra.Command{Use: "create", Short: "Make a token for another cluster", Args: noArguments}
	flags := cmd.Flags()
	flags.DurationVar(&w.ttl, "ttl", w.ttl, "how long the token is good; 0 is without end")
	flags.IntVar(&w.uses, "uses", w.uses, "how many clusters may use it; 0 is any number")
	flags.StringVar(&w.forID, "for", "", "`id` of the cluster that alone may use it; else any that is not a peer yet")
	flags.BoolVar(&w.bothWays, "both-ways", false, "with --for: this cluster uses that one, too, by the token that it sends in return (there: peer --both-ways)")
	flags.StringVar(&w.url, "url", "", "https `URL` by which that cluster reaches this one's authentication (Service liqod-auth); else authentication.url of the chart, else the address of that Service's load balancer")
	addChoice(cmd, &w.trust, "trust", "", "how far this cluster trusts a cluster that uses the token; else as the setting sharing.trust says", string(corev1beta1.TrustStrict), string(corev1beta1.TrustOrganisation))
	addChoice(cmd, &w.output, "output", "o", "print more than the token", asYAML, asJSON)
	conn := c.connection(flags)
	_ = cmd.RegisterFlagCompletionFunc("for", c.completer(conn, math.MaxInt, peerNames)) // fails for flags only that do not exist
	cmd.PreRunE = func(*cobra.Command, []string) error { return w.check() }
	cmd.RunE = interruptible(c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) error {
		view, err := w.create(cmd.Context(), to)
		if err != nil {
			return explain(err)
		}
		text := closed
		if w.trust == string(corev1beta1.TrustOrganisation) {
			text = opened
		}
		if err := say(cmd.ErrOrStderr(), "%s", text); err != nil {
			return err
		}
		if w.output != "" {
			return printData(cmd.OutOrStdout(), w.output, view)
		}
		return say(cmd.OutOrStdout(), "%s", view.Token)
	}))
	return cmd
}

func (w *tokenWish) check() error {
	switch {
	case w.ttl < 0 || w.ttl > 0 && w.ttl < time.Minute:
		return Usagef("--ttl=%s: a minute or more is accepted, or 0", w.ttl)
	case w.uses < 0 || w.uses > trust.MostUses:
		return Usagef("--uses=%d: a number up to %d is accepted, or 0 for any number", w.uses, trust.MostUses)
	case w.forID != "" && trust.CheckClusterID(w.forID) != nil:
		return Usagef("--for: %v", trust.CheckClusterID(w.forID))
	case w.bothWays && w.forID == "":
		return Usagef("--both-ways needs --for: which cluster is used, too")
	case w.url != "" && trust.CheckURL(w.url) != nil:
		return Usagef("--url: %v", trust.CheckURL(w.url))
	}
	return nil
}

// create makes the token and its Secret.
func (w *tokenWish) create(ctx context.Context, to *clients) (tokenView, error) {
	id, namespace, err := join.Installed(ctx, to.kube)
	if err != nil {
		return tokenView{}, err
	}
	if w.forID == id {
		return tokenView{}, fmt.Errorf("this is cluster %s: a cluster cannot be a peer of itself", id)
	}
	if err := w.trustable(ctx, to); err != nil {
		return tokenView{}, err
	}
	url, err := authURL(ctx, to, namespace, w.url)
	if err != nil {
		return tokenView{}, err
	}
	ca, err := join.Authority(ctx, to.kube, namespace)
	if err != nil {
		return tokenView{}, err
	}
	token, err := trust.NewToken(url, id, ca)
	if err != nil {
		return tokenView{}, err
	}
	if w.bothWays {
		if err := (join.Cluster{ID: id, Namespace: namespace, Kube: to.kube, Liqo: to.liqo}).Use(ctx, w.forID); err != nil {
			return tokenView{}, err
		}
	}
	record := trust.Record{ID: token.ID, Hash: trust.Hash(token.Secret), Uses: w.uses, ClusterID: w.forID, Trust: corev1beta1.Trust(w.trust)}
	if w.ttl > 0 {
		record.Expiration = to.now().Add(w.ttl)
	}
	secret := trust.NewSecret(namespace, record)
	if _, err := to.kube.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return tokenView{}, fmt.Errorf("creating secret %s/%s: %w", namespace, secret.Name, err)
	}
	tidyTokens(ctx, to, namespace)
	view := viewOf(record, to.now())
	view.Token, view.URL = token.String(), url
	return view, nil
}

// trustable returns an error if --trust would have no effect: people have set another trust.
func (w *tokenWish) trustable(ctx context.Context, to *clients) error {
	if w.trust == "" || w.forID == "" {
		return nil
	}
	fc, err := store.Live(ctx, "ForeignCluster", to.liqo.CoreV1beta1().ForeignClusters(), w.forID)
	if err != nil {
		return err
	}
	if fc != nil && fc.Spec.Trust != "" && string(fc.Spec.Trust) != w.trust {
		return fmt.Errorf("--trust=%s would have no effect: ForeignCluster %s has spec.trust %s, which no token changes; kubectl patch foreigncluster %s --type=merge -p '{\"spec\":{\"trust\":\"%s\"}}' changes it",
			w.trust, fc.Name, fc.Spec.Trust, fc.Name, w.trust)
	}
	return nil
}

// authURL returns the URL under which other clusters reach the endpoint. It is the URL of
// the flag, else the one of the chart, else the address of the Service's load balancer.
func authURL(ctx context.Context, to *clients, namespace, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if url, err := chartURL(ctx, to); err != nil || url != "" {
		return url, err
	}
	svc, err := store.Live(ctx, "Service", to.kube.CoreV1().Services(namespace), authService)
	if err != nil {
		return "", err
	}
	if svc != nil {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if host := in.Hostname + in.IP; (in.Hostname == "" || in.IP == "") && host != "" && len(svc.Spec.Ports) > 0 {
				return "https://" + net.JoinHostPort(host, strconv.Itoa(int(svc.Spec.Ports[0].Port))), nil
			}
		}
	}
	return "", fmt.Errorf("it is not known how other clusters reach this one: say with --url how they reach Service %s/%s, or set authentication.url of the chart", namespace, authService)
}

// chartURL returns the setting authentication.url of the chart, or an error if the endpoint is disabled.
func chartURL(ctx context.Context, to *clients) (string, error) {
	var config struct { // its keys match in any case
		Authentication struct {
			Address *string
			URL     string
		}
	}
	_, err := join.Configuration(ctx, to.kube, &config)
	if a := config.Authentication.Address; err == nil && a != nil && *a == "" {
		err = errors.New("this cluster gives no identities: authentication.enabled of the chart is false")
	}
	return config.Authentication.URL, err
}

// tidyTokens deletes tokens that expired long ago. Its errors are ignored.
func tidyTokens(ctx context.Context, to *clients, namespace string) {
	_, _ = store.Sweep(ctx, "token", to.kube.CoreV1().Secrets(namespace), tokenSecrets(), func(s *corev1.Secret) bool {
		record, err := trust.ReadSecret(s)
		return err == nil && record.Expired(to.now().Add(-tokenKept))
	})
}

// tokenSecrets selects the Secrets of tokens.
func tokenSecrets() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "type=" + corev1beta1.PeeringTokenType}
}

func viewOf(r trust.Record, now time.Time) tokenView {
	v := tokenView{ID: r.ID, For: r.ClusterID, Trust: string(r.Trust), Uses: r.Uses, State: "good", age: "never"}
	for _, use := range r.Redemptions {
		v.UsedBy = append(v.UsedBy, use.ClusterID)
	}
	if !r.Expiration.IsZero() {
		v.Expiration, v.age = r.Expiration.UTC().Format(time.RFC3339), "in "+duration.HumanDuration(r.Expiration.Sub(now))
	}
	switch {
	case r.Expired(now):
		v.State, v.age = "expired", duration.HumanDuration(now.Sub(r.Expiration))+" ago"
	case r.UsedUp():
		v.State = "used"
	}
	return v
}

func (c *commands) tokenList() *cobra.Command {
	var output string
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "Show the tokens of this cluster", Args: noArguments}
	addChoice(cmd, &output, "output", "o", "print the tokens as data", asYAML, asJSON)
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) error {
		views, err := listTokens(cmd.Context(), to)
		if err != nil {
			return explain(err)
		}
		return show(cmd.OutOrStdout(), output, views, func() string { return tokensText(views) })
	}))
	return cmd
}

func listTokens(ctx context.Context, to *clients) ([]tokenView, error) {
	namespace, err := join.Namespace(ctx, to.kube)
	if err != nil {
		return nil, err
	}
	all, err := store.Find[*corev1.Secret](ctx, "token", to.kube.CoreV1().Secrets(namespace), tokenSecrets())
	views := []tokenView{}
	for _, secret := range all {
		record, wrong := trust.ReadSecret(secret)
		switch {
		case secret.Type != corev1beta1.PeeringTokenType:
		case wrong != nil:
			id := strings.TrimPrefix(secret.Name, corev1beta1.PeeringTokenPrefix)
			views = append(views, tokenView{ID: id, State: "wrong: " + wrong.Error(), age: "-"})
		default:
			views = append(views, viewOf(record, to.now()))
		}
	}
	return views, err
}

func tokensText(views []tokenView) string {
	if len(views) == 0 {
		return "no tokens\n"
	}
	return report.Table("ID\tFOR\tTRUST\tUSES\tEXPIRES\tSTATE\tUSED BY", views, func(v tokenView) string {
		limit := strconv.Itoa(v.Uses)
		if v.Uses == 0 {
			limit = "any"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", v.ID, cmp.Or(v.For, "any"), cmp.Or(v.Trust, "-"), limit, v.age, v.State, strings.Join(v.UsedBy, ","))
	})
}

func (c *commands) tokenRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke ID...", Short: "Remove tokens",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Usagef("%s needs the id of a token, or the token: see %s token list", cmd.CommandPath(), c.program)
			}
			return nil
		},
	}
	conn := c.connection(cmd.Flags())
	cmd.ValidArgsFunction = c.completer(conn, 1, func(ctx context.Context, to *clients) ([]string, error) {
		views, err := listTokens(ctx, to)
		return report.Names(views, func(v *tokenView) string { return v.ID }), err
	})
	cmd.RunE = interruptible(c.connected(conn, func(cmd *cobra.Command, to *clients, args []string) error {
		namespace, err := join.Namespace(cmd.Context(), to.kube)
		if err != nil {
			return explain(err)
		}
		var errs []error
		for _, arg := range args {
			errs = append(errs, revoke(cmd.Context(), to, namespace, arg, cmd.OutOrStdout()))
		}
		return explain(errors.Join(errs...))
	}))
	return cmd
}

// revoke deletes the Secret of a token. It does not delete another Secret of the same name.
func revoke(ctx context.Context, to *clients, namespace, arg string, out io.Writer) error {
	id := arg
	if token, err := trust.ParseToken(arg); err == nil {
		id = token.ID
	}
	secrets := to.kube.CoreV1().Secrets(namespace)
	secret, err := store.Live(ctx, "Secret", secrets, trust.SecretName(id))
	if err != nil {
		return err
	}
	if secret == nil || secret.Type != corev1beta1.PeeringTokenType {
		return fmt.Errorf("there is no token %.40q", id)
	}
	if err := store.Delete(ctx, "Secret", secrets, secret); err != nil {
		return err
	}
	return say(out, "token %s is revoked", id)
}
