package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

const (
	// longestToken is a size in bytes that no token exceeds.
	longestToken = 8 << 10
	// awayPatience is the time until the status shows that a peer is unreachable.
	awayPatience = 20 * time.Second
)

// peerByToken gives liqod's controller a token, and waits until the controller has an
// identity and a virtual node.
func (c *commands) peerByToken(ctx context.Context, invitation join.Invitation, here *side, wait bool, out io.Writer) error {
	if invitation.BothWays {
		if err := offers(ctx, here); err != nil {
			return explain(err)
		}
	}
	provider, err := here.Accept(ctx, invitation)
	if err != nil {
		return explain(err)
	}
	if err := say(out, "%s: the capacity of cluster %s is asked for", here.ID, provider); err != nil || !wait {
		return err
	}
	given, err := trust.ParseToken(invitation.Token)
	if err != nil {
		return err
	}
	last, err := c.until(ctx, out, func(ctx context.Context) (look, error) { return c.joined(ctx, here, given) })
	if err := last.outcome(err, "cluster "+given.ClusterID+" cannot be used yet", "what was asked for stands"); err != nil {
		return explain(err)
	}
	theirs, err := store.OrNil(here.Liqo.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(provider)).Get(ctx, provider, metav1.GetOptions{}))
	if err != nil || theirs == nil || theirs.Spec.Accepts == nil || theirs.Spec.Accepts.Trust != corev1beta1.TrustStrict {
		return nil // the peering is complete, also where people may not read offers
	}
	return say(out, "cluster %s: %s", provider, report.StrictProvider)
}

// offers returns an error if this cluster cannot send a token in return. The controller
// needs authentication.url for it.
func offers(ctx context.Context, here *side) error {
	url, err := chartURL(ctx, here.to)
	if err == nil && url == "" {
		err = errors.New("--both-ways: it is not known how other clusters reach this one: set authentication.url of the chart")
	}
	return err
}

// readToken returns the token of a flag. The value - stands for the first line of the
// standard input.
func readToken(flag string, in io.Reader) (string, error) {
	if flag != "-" {
		return flag, nil
	}
	line, err := bufio.NewReader(io.LimitReader(in, longestToken)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", Usagef("--token=-: there is no token in the standard input")
	}
	return line, nil
}

// joined returns the progress of a peering by a token. It has ended once this cluster has an identity in the provider, and
// virtual nodes that are Ready. An earlier state is not about this token, and so says nothing
// about its progress.
func (c *commands) joined(ctx context.Context, here *side, token trust.Token) (now look, err error) {
	provider := token.ClusterID
	now = look{lines: map[string]string{}}
	fc, err := store.OrNil(here.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, provider, metav1.GetOptions{}))
	if err != nil {
		return now, err
	}
	if fc == nil {
		return look{lines: map[string]string{"": "the ForeignCluster was deleted meanwhile"}, failed: true}, nil
	}
	conditions := fc.Status.Conditions
	authenticated := meta.FindStatusCondition(conditions, corev1beta1.ConditionAuthenticated)
	if authenticated == nil || authenticated.Status != metav1.ConditionTrue && !strings.Contains(authenticated.Message, token.Mark()) {
		now.lines[""] = "waiting for liqod's controller to process it (if that takes long: " + c.program + " check)"
		if authenticated != nil {
			now.summary = fmt.Sprintf("%s. The last state is not about this token: %s", now.lines[""], report.Line(authenticated.Message))
		}
		return now, nil
	}
	now.lines["identity"] = authenticated.Message
	if authenticated.Status != metav1.ConditionTrue {
		now.failed = corev1beta1.NeedsPeople(authenticated.Reason)
		return now, nil
	}
	if outgoing := meta.FindStatusCondition(conditions, corev1beta1.ConditionOutgoingPeering); outgoing != nil {
		now.lines["capacity"] = outgoing.Message
	}
	nodes, err := here.Liqo.OffloadingV1beta1().VirtualNodes(corev1beta1.TenantNamespace(provider)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, err
	}
	now.done = len(nodes.Items) > 0
	for _, vn := range nodes.Items {
		ready := meta.FindStatusCondition(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
		if ready != nil {
			now.lines["virtual node "+vn.Name] = ready.Message
		}
		now.done = now.done && ready != nil && ready.Status == metav1.ConditionTrue
	}
	return now, nil
}

// confirmAway returns an error if the peer answers. With --force, the pods in a peer that
// answers would run on there unnoticed.
func (c *commands) confirmAway(ctx context.Context, here *side, peer string, out io.Writer) error {
	ctx, cancel := after(ctx, awayPatience)
	defer cancel()
	_, err := c.until(ctx, out, func(ctx context.Context) (look, error) {
		fc, err := store.OrNil(here.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, peer, metav1.GetOptions{}))
		if err != nil {
			return look{}, err
		}
		if fc != nil && corev1beta1.Reached(fc) {
			return look{lines: map[string]string{"": fmt.Sprintf("cluster %s answers, as far as is known", peer)}}, nil
		}
		return look{done: true}, nil
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("cluster %s answers: ask without --force, so that it removes what it runs for this cluster", peer)
	}
	return err
}

// endpointPatience is how long an authentication endpoint may take to answer.
const endpointPatience = 10 * time.Second

// examineToken returns the findings about a token of another cluster. It does not redeem it.
func (c *commands) examineToken(ctx context.Context, conn *connection, token trust.Token) []report.Finding {
	e := &report.Examination{Section: sectionToken}
	e.Add(idToken, report.OK, "Token "+token.ID, fmt.Sprintf("it is one of cluster %s, whose endpoint is %s. Whether it has expired or has been used, only cluster %s knows (there: %s token list)",
		token.ClusterID, token.AuthURL, token.ClusterID, c.program), "")
	examineEndpoint(ctx, e, token)
	level, message, fix := c.examineUse(ctx, conn, token)
	e.Add(idTokenCluster, level, "This cluster", message, fix)
	return e.Findings
}

// examineUse says whether this cluster can use a token.
func (c *commands) examineUse(ctx context.Context, conn *connection, token trust.Token) (level report.Level, message, fix string) {
	to, err := c.connect(conn)
	if err != nil {
		return report.Unknown, "it cannot be asked: " + err.Error(), ""
	}
	id, _, err := join.Installed(ctx, to.kube)
	switch {
	case errors.Is(err, join.ErrNotInstalled):
		return report.Problem, "liqod is not installed in it", "install the chart; " + c.program + " check --pre examines what that needs"
	case err != nil:
		return report.Unknown, "it cannot be asked: " + explain(err).Error(), ""
	case id == token.ClusterID:
		return report.Problem, "the token is one of this cluster itself: a cluster cannot be a peer of itself", "select the cluster that is to use cluster " + id + " (" + localFlags + ")"
	}
	fc, err := store.OrNil(to.liqo.CoreV1beta1().ForeignClusters().Get(ctx, token.ClusterID, metav1.GetOptions{}))
	switch {
	case err != nil:
		return report.Unknown, "its ForeignClusters cannot be read: " + explain(err).Error(), ""
	case fc != nil:
		return report.Warning, fmt.Sprintf("cluster %s is a peer of cluster %s already: a token replaces its identity only if it was made with --for=%s", token.ClusterID, id, id), ""
	}
	return report.OK, fmt.Sprintf("it is cluster %s, and can use the token: %s peer --token=...", id, c.program), ""
}

// examineEndpoint asks the endpoint of a token for something that it refuses. It sends
// neither the token nor its secret.
func examineEndpoint(ctx context.Context, e *report.Examination, token trust.Token) {
	const subject = "Authentication endpoint"
	ctx, cancel := context.WithTimeout(ctx, endpointPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(token.AuthURL, "/")+trust.EnrollPath, nil)
	if err != nil {
		e.Add(idTokenEndpoint, report.Problem, subject, err.Error(), "")
		return
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust.PinnedTLS(token.CA), DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10}
	answer, err := transport.RoundTrip(request) // which follows no redirect
	if err != nil {
		e.Add(idTokenEndpoint, report.Problem, subject, token.AuthURL+" does not answer as it should to this machine: "+unreached(err),
			"is the port open, and does "+token.AuthURL+" lead to Service liqod-auth of cluster "+token.ClusterID+"? A token with another URL: liqod token create --url")
		return
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, trust.MaxBody))
	if answer.StatusCode != http.StatusMethodNotAllowed {
		e.Add(idTokenEndpoint, report.Problem, subject, fmt.Sprintf("%s answers with status %d, so it is not an authentication endpoint of liqod", token.AuthURL, answer.StatusCode),
			"ask cluster "+token.ClusterID+" for a token with the right --url")
		return
	}
	e.Add(idTokenEndpoint, report.OK, subject, token.AuthURL+" answers to this machine with the certificate of the token. The controller in the cluster must reach it, too", "")
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The date has no fractions of a second.
		if skew := time.Until(date); skew.Abs() > clockSlack {
			e.Add(idTokenClocks, report.Warning, "Clocks", fmt.Sprintf("the clock of cluster %s is %s the clock of this machine", token.ClusterID, ahead(skew)), "set the clocks by NTP")
		}
	}
}

// unreached says why an endpoint gives no answer, or a wrong one.
func unreached(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "the name " + dns.Name + " is not found"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	return err.Error()
}
