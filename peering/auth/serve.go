package auth

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/trust"
)

const (
	// atOnce is the number of requests handled concurrently. Further ones are refused as
	// busy. peersAtOnce is that of peers with a verified certificate, which have places of
	// their own, and eachAtOnce that of a single one of them.
	atOnce      = 64
	peersAtOnce = 32
	eachAtOnce  = 4
	// longestChain is the number of certificates up to which a client's chain is verified
	// for a budget of its own.
	longestChain = 4
	// answerTimeout includes the time that a signer may take, and the wait for the
	// controller to bind rights in a new tenant namespace.
	answerTimeout = 45 * time.Second
	readTimeout   = 10 * time.Second
	stopTimeout   = 5 * time.Second
	mostHeaders   = 16 << 10 // bytes
	retryAfter    = "5"      // seconds

	granted = "granted"
)

// Handler returns the handler of the endpoint's paths. The handler verifies client
// certificates itself, rather than in the TLS handshake, so that a client with an invalid
// one gets a readable error.
func (e *Endpoint) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, answer func(r *http.Request, body []byte) (any, string, error)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
			defer cancel()
			e.serve(w, r.WithContext(ctx), path, answer)
		})
	}
	handle(trust.EnrollPath, func(r *http.Request, body []byte) (any, string, error) {
		var req trust.EnrollRequest
		if !e.limits.all.AllowN(e.cfg.Clock.Now(), 1) {
			return nil, "", e.tooManyStrangers()
		}
		if err := decode(body, &req); err != nil {
			return nil, "", err
		}
		grant, err := e.enroll(r.Context(), req)
		return grant, req.ClusterID, err
	})
	handle(trust.RenewPath, func(r *http.Request, body []byte) (any, string, error) {
		var req trust.RenewRequest
		p, user, err := e.proven(r, body, &req)
		if err != nil {
			return nil, req.ClusterID, err
		}
		grant, err := e.renew(r.Context(), req, p, user)
		return grant, req.ClusterID, err
	})
	handle(trust.LeavePath, func(r *http.Request, body []byte) (any, string, error) {
		var req trust.LeaveRequest
		_, user, err := e.proven(r, body, &req)
		if err == nil {
			err = e.leave(r.Context(), req, user)
		}
		return struct{}{}, req.ClusterID, err
	})
	return mux
}

// proven decodes a request and verifies the client's identity. Requests whose proof is a
// bearer token or turns out to be invalid count against the common limit.
func (e *Endpoint) proven(r *http.Request, body []byte, req any) (proof, string, error) {
	p := proof{}
	if r.TLS != nil {
		p.chain = r.TLS.PeerCertificates
	}
	if len(p.chain) == 0 {
		p.bearer, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if p.bearer == "" {
			return p, "", refuse(trust.ReasonUnauthorized, "the present identity is required: its client certificate, or its token as a bearer token")
		}
		if !e.limits.all.AllowN(e.cfg.Clock.Now(), 1) {
			return p, "", e.tooManyStrangers()
		}
	}
	if err := decode(body, req); err != nil {
		return p, "", err
	}
	user, err := e.user(r.Context(), p)
	var no *refusal
	if errors.As(err, &no) && len(p.chain) > 0 && !e.limits.all.AllowN(e.cfg.Clock.Now(), 1) {
		err = e.tooManyStrangers()
	}
	return p, user, err
}

// verified returns the user of a request whose certificate proves it, or "" for all
// others, also beyond the limit of the address. It does not answer whether the user still has
// rights.
func (e *Endpoint) verified(r *http.Request, remote netip.Addr) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates) > longestChain {
		return ""
	}
	valid := e.limits.proof(remote, e.cfg.Clock.Now())
	if valid == nil {
		return ""
	}
	user, err := e.user(r.Context(), proof{chain: r.TLS.PeerCertificates})
	if err != nil || !strings.HasPrefix(user, corev1beta1.PeerUserPrefix) || !trust.InPeersGroup(r.TLS.PeerCertificates[0].Subject) {
		return ""
	}
	valid()
	return user
}

func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request, path string, answer func(*http.Request, []byte) (any, string, error)) {
	remote := serve.Address(r.RemoteAddr)
	user := e.verified(r, remote)
	if !e.limits.client(user, remote, e.cfg.Clock.Now()) {
		e.refuse(w, path, remote, "", e.tooMany("requestsPerAddress", "%d requests a minute of one address or peer", e.cfg.PerAddress))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, trust.MaxBody))
	if err != nil {
		e.refuse(w, path, remote, "", refuse(trust.ReasonInvalid, "reading the request: at most %d bytes are accepted, within %s", trust.MaxBody, readTimeout))
		return
	}
	free := e.place(user)
	if free == nil {
		e.refuse(w, path, remote, "", refuse(trust.ReasonBusy, "cluster %s works on too many requests at the moment: try again later", e.cfg.ClusterID))
		return
	}
	defer free()
	defer serve.Working(r.Context())()
	out, peer, err := answer(r, body)
	if err != nil {
		e.refuse(w, path, remote, peer, err)
		return
	}
	e.cfg.Count(path, granted)
	fields := []zap.Field{zap.String("path", path), zap.String("peer", peer), zap.Stringer("from", remote)}
	if grant, ok := out.(trust.Grant); ok {
		fields = append(fields, zap.String("user", grant.User), zap.Time("notAfter", grant.NotAfter))
	}
	e.cfg.Log.Info("granted to a peer", fields...)
	write(w, http.StatusOK, out)
}

// tooMany refuses a request beyond a limit of section authentication of the settings.
func (e *Endpoint) tooMany(setting, limit string, n int) *refusal {
	return refuse(trust.ReasonBusy, "cluster %s accepts "+limit+" (its setting authentication.%s): try again later", e.cfg.ClusterID, n, setting)
}

func (e *Endpoint) tooManyStrangers() *refusal {
	return e.tooMany("requestsPerMinute", "%d requests a minute of clients without a proven identity", e.cfg.PerMinute)
}

// refuse answers a request with an error. Internal errors are logged, and not shown to the
// peer.
func (e *Endpoint) refuse(w http.ResponseWriter, path string, remote netip.Addr, peer string, err error) {
	log := e.cfg.Log
	if !e.limits.lines.AllowN(e.cfg.Clock.Now(), 1) {
		log = zap.NewNop() // the request is counted, but not logged
	}
	var told *refusal
	var taken *nameTaken
	switch {
	case errors.As(err, &told):
		log.Info("refused to a peer", zap.String("path", path), zap.String("peer", printable(peer)), zap.Stringer("from", remote), zap.String("reason", told.Reason), zap.String("message", told.Message))
		if told.about != nil {
			e.cfg.Home.Told(told.about, corev1beta1.ReasonEnrolmentRefused, told.Message)
		}
	case errors.As(err, &taken):
		told = refuse(trust.ReasonConflict, "this cluster has a ForeignCluster named %s for another cluster: its administrator must rename it", peer)
	case errors.Is(err, ErrNotSigned):
		told = refuse(trust.ReasonBusy, "this cluster has not signed the certificate in time: try again; if the cluster never signs certificates, its administrator must set authentication.identity to token")
	default:
		told = refuse(trust.ReasonBusy, "this cluster cannot answer now: try again")
	}
	if told != err { //nolint:errorlint // identity: a refusal has been logged above
		log.Warn("a peer could not be answered", zap.String("path", path), zap.String("peer", printable(peer)), zap.Stringer("from", remote), zap.Error(err))
	}
	e.cfg.Count(path, told.Reason)
	if told.Reason == trust.ReasonBusy {
		w.Header().Set("Retry-After", retryAfter)
	}
	write(w, status(told.Reason), told.Refusal)
}

// printable returns the cluster id that a client claims, or "" if it is not valid, so that
// a stranger cannot write arbitrary text to the log.
func printable(id string) string {
	if trust.CheckClusterID(id) != nil {
		return ""
	}
	return id
}

func status(reason string) int {
	return cmp.Or(map[string]int{
		trust.ReasonInvalid: http.StatusBadRequest, trust.ReasonUnauthorized: http.StatusUnauthorized,
		trust.ReasonRefused: http.StatusForbidden, trust.ReasonConflict: http.StatusConflict,
	}[reason], http.StatusServiceUnavailable)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone; it will retry
}

// decode reads one JSON object. It ignores unknown fields, because later versions may add
// some.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return refuse(trust.ReasonInvalid, "the request is not valid JSON of the accepted form")
	}
	return nil
}

// Serve listens on a TCP address and answers requests until ctx is done. certificate
// returns the server's certificate with its authority in the chain, as peers identify the
// server by the authority's fingerprint.
func (e *Endpoint) Serve(ctx context.Context, address string, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	server, err := serve.Listen(ctx, serve.Config{
		Address: address, Handler: e.Handler(), Connections: e.cfg.Connections, PerAddress: e.cfg.ConnectionsPerAddress, Headers: mostHeaders,
		TLS:     &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, GetCertificate: certificate},
		Request: readTimeout, Answer: readTimeout + answerTimeout, Grace: stopTimeout, Count: e.cfg.Closed, Log: e.cfg.Log,
	})
	if err == nil {
		err = server.Run(ctx)
	}
	if err != nil {
		return fmt.Errorf("serving the authentication of peers at %s: %w", address, err)
	}
	return nil
}

// limits are the rate limits of the endpoint. It is safe for concurrent use.
type limits struct {
	all        *rate.Limiter
	lines      *rate.Limiter // log lines about refused requests
	perAddress int           // requests per minute

	each   loop.Pace
	proofs loop.Pace // chains of certificates that proved nothing
	users  loop.Pace // of verified certificates; there are few
}

func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n)/60, n) }

func newLimits(all, perAddress int) *limits {
	return &limits{all: perMinute(all), lines: perMinute(all), perAddress: perAddress}
}

// client reports whether a request is within its limit, and counts it: that of the user, or
// that of the address if user is empty.
func (l *limits) client(user string, remote netip.Addr, now time.Time) bool {
	of, name := &l.users, user
	if user == "" {
		of, name = &l.each, serve.Neighbourhood(remote).String()
	}
	return of.Take(name, l.perAddress, time.Minute/time.Duration(l.perAddress), now) == 0
}

// proof counts a chain of certificates from an address, before it is verified. It returns nil
// beyond the limit, and else what takes the count back. Requests without certificates do not
// count, so that they keep no peer with the same address out.
func (l *limits) proof(remote netip.Addr, now time.Time) (valid func()) {
	wait, valid := l.proofs.Reserve(serve.Neighbourhood(remote).String(), l.perAddress, time.Minute/time.Duration(l.perAddress), now)
	if wait > 0 {
		return nil
	}
	return valid
}

// place returns the function that frees the place of a request in work, or nil if there is none. user is
// the verified user, or empty.
func (e *Endpoint) place(user string) (free func()) {
	if user == "" {
		return e.strangers.Take("", atOnce, atOnce)
	}
	return e.peers.Take(user, peersAtOnce, eachAtOnce)
}
