package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/manual"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/roles/cmd/report"
)

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
	id, _, err := manual.Installed(ctx, to.kube)
	switch {
	case errors.Is(err, manual.ErrNotInstalled):
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
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust.PinnedTLS(token.CA), DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it is a redirect, which is not followed")
		},
	}
	answer, err := client.Do(request)
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
	var inner *url.Error
	switch {
	case errors.As(err, &dns):
		return "the name " + dns.Name + " is not found"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.As(err, &inner):
		return inner.Err.Error()
	}
	return err.Error()
}
