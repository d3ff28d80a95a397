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
	out := []report.Finding{ofToken(idToken, report.OK, "Token "+token.ID, fmt.Sprintf("it is one of cluster %s, whose endpoint is %s. Whether it has expired or has been used, only cluster %s knows (there: %s token list)",
		token.ClusterID, token.AuthURL, token.ClusterID, c.program), "")}
	out = append(out, examineEndpoint(ctx, token)...)
	to, err := c.connect(conn)
	if err != nil {
		return append(out, ofToken(idTokenCluster, report.Unknown, "This cluster", "it cannot be asked: "+err.Error(), ""))
	}
	return append(out, c.examineUse(ctx, to, token)...)
}

func ofToken(id report.ID, level report.Level, subject, message, fix string) report.Finding {
	return report.Finding{ID: id, Docs: id.Docs(), Section: sectionToken, Level: level, Subject: subject, Message: message, Fix: fix}
}

// examineUse returns the findings about the use of a token in this cluster.
func (c *commands) examineUse(ctx context.Context, to *clients, token trust.Token) []report.Finding {
	const subject = "This cluster"
	id, _, err := manual.Installed(ctx, to.kube)
	switch {
	case errors.Is(err, manual.ErrNotInstalled):
		return []report.Finding{ofToken(idTokenCluster, report.Problem, subject, "liqod is not installed in it", "install the chart; "+c.program+" check --pre examines what that needs")}
	case err != nil:
		return []report.Finding{ofToken(idTokenCluster, report.Unknown, subject, "it cannot be asked: "+explain(err).Error(), "")}
	case id == token.ClusterID:
		return []report.Finding{ofToken(idTokenCluster, report.Problem, subject, "the token is one of this cluster itself: a cluster cannot be a peer of itself", "select the cluster that is to use cluster "+id+" ("+localFlags+")")}
	}
	fc, err := store.OrNil(to.liqo.CoreV1beta1().ForeignClusters().Get(ctx, token.ClusterID, metav1.GetOptions{}))
	if err != nil {
		return []report.Finding{ofToken(idTokenCluster, report.Unknown, subject, "its ForeignClusters cannot be read: "+explain(err).Error(), "")}
	}
	if fc != nil {
		return []report.Finding{ofToken(idTokenCluster, report.Warning, subject, fmt.Sprintf("cluster %s is a peer of cluster %s already: a token replaces its identity only if it was made with --for=%s", token.ClusterID, id, id), "")}
	}
	return []report.Finding{ofToken(idTokenCluster, report.OK, subject, fmt.Sprintf("it is cluster %s, and can use the token: %s peer --token=...", id, c.program), "")}
}

// examineEndpoint asks the endpoint of a token for something that it refuses. It sends
// neither the token nor its secret.
func examineEndpoint(ctx context.Context, token trust.Token) []report.Finding {
	const subject = "Authentication endpoint"
	ctx, cancel := context.WithTimeout(ctx, endpointPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(token.AuthURL, "/")+trust.EnrollPath, nil)
	if err != nil {
		return []report.Finding{ofToken(idTokenEndpoint, report.Problem, subject, err.Error(), "")}
	}
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust.PinnedTLS(token.CA), DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it is a redirect, which is not followed")
		},
	}
	answer, err := client.Do(request)
	if err != nil {
		return []report.Finding{unreached(subject, token, err)}
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, trust.MaxBody))
	if answer.StatusCode != http.StatusMethodNotAllowed {
		return []report.Finding{ofToken(idTokenEndpoint, report.Problem, subject, fmt.Sprintf("%s answers with status %d, so it is not an authentication endpoint of liqod", token.AuthURL, answer.StatusCode),
			"ask cluster "+token.ClusterID+" for a token with the right --url")}
	}
	out := []report.Finding{ofToken(idTokenEndpoint, report.OK, subject, token.AuthURL+" answers to this machine with the certificate of the token. The controller in the cluster must reach it, too", "")}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		// The date has no fractions of a second.
		if skew := time.Until(date); skew.Abs() > clockSlack {
			out = append(out, ofToken(idTokenClocks, report.Warning, "Clocks", fmt.Sprintf("the clock of cluster %s is %s the clock of this machine", token.ClusterID, ahead(skew)), "set the clocks by NTP"))
		}
	}
	return out
}

// unreached returns the finding about an endpoint that gives no answer, or a wrong one.
func unreached(subject string, token trust.Token, err error) report.Finding {
	var dns *net.DNSError
	var timeout net.Error
	reason, fix := err.Error(), "is the port open, and does "+token.AuthURL+" lead to Service liqod-auth of cluster "+token.ClusterID+"? A token with another URL: liqod token create --url"
	var inner *url.Error
	if errors.As(err, &inner) {
		reason = inner.Err.Error()
	}
	switch {
	case errors.As(err, &dns):
		reason = "the name " + dns.Name + " is not found"
	case errors.As(err, &timeout) && timeout.Timeout():
		reason = "no answer in time"
	}
	return ofToken(idTokenEndpoint, report.Problem, subject, token.AuthURL+" does not answer as it should to this machine: "+reason, fix)
}
