package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"go.uber.org/zap"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// What a kubelet keeps answers for, by default.
const (
	tokenTTL  = 2 * time.Minute
	allowTTL  = 5 * time.Minute
	denyTTL   = 30 * time.Second
	reviewMax = 10 * time.Second
)

// The ConfigMap in which an API server publishes the CA of its clients.
const (
	clientCAConfigMap = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

var errNoNodeName = errors.New("kubelet API: the node name is empty, so that no right could be asked for")

// guard says who may ask what.
type guard struct {
	nodeName      string
	authenticator authenticator.Request
	allowed       func(ctx context.Context, who user.Info, what authorizationv1.ResourceAttributes) (bool, error)
	log           *zap.Logger
	// run keeps the client CA current until ctx is done.
	run func(ctx context.Context)
}

func newGuard(cfg Config) (*guard, error) {
	if cfg.NodeName == "" {
		return nil, errNoNodeName
	}
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, clientCAConfigMap, clientCAKey, cfg.Kube)
	if err != nil {
		return nil, fmt.Errorf("preparing the client CA: %w", err)
	}
	asked := &reviews{tokens: cfg.Kube.AuthenticationV1().TokenReviews(), rights: cfg.Kube.AuthorizationV1().SubjectAccessReviews(),
		answers: utilcache.NewLRUExpireCache(answersKept)}
	// Nobody is anonymous: who shows nothing is refused.
	authn := union.NewFailOnError(
		x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion),
		bearertoken.New(cache.New(asked, false, tokenTTL, tokenTTL)),
	)
	return &guard{
		nodeName: cfg.NodeName, authenticator: group.NewAuthenticatedGroupAdder(authn), allowed: asked.allowed, log: cfg.Log,
		run: func(ctx context.Context) { ca.Run(ctx, 1) },
	}, nil
}

// admit reports whether the request may go on; if not, it has answered.
func (g *guard) admit(w http.ResponseWriter, r *http.Request) bool {
	answer, ok, err := g.authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		g.log.Debug("request not authenticated", zap.String("path", r.URL.Path), zap.Error(err))
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return false
	}
	verb := verbOf(r)
	if verb == "" {
		http.Error(w, fmt.Sprintf("method %s is not accepted: use GET or POST", r.Method), http.StatusMethodNotAllowed)
		return false
	}
	if !plain(r) {
		http.NotFound(w, r)
		return false
	}
	return g.authorized(w, r, answer.User, verb)
}

func (g *guard) authorized(w http.ResponseWriter, r *http.Request, who user.Info, verb string) bool {
	subresources := subresourcesOf(r.URL.Path)
	for _, subresource := range subresources {
		allowed, err := g.allowed(r.Context(), who, authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: g.nodeName,
		})
		if err != nil {
			g.log.Warn("authorisation could not be checked", zap.String("user", who.GetName()), zap.String("path", r.URL.Path), zap.Error(err))
			http.Error(w, fmt.Sprintf("whether %s may %s nodes/%s cannot be checked now: the API server does not answer", who.GetName(), verb, subresource),
				http.StatusServiceUnavailable)
			return false
		}
		if allowed {
			return true
		}
	}
	g.log.Info("request forbidden", zap.String("user", who.GetName()), zap.String("verb", verb), zap.Strings("subresources", subresources))
	http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", who.GetName(), verb, subresources), http.StatusForbidden)
	return false
}

// plain reports whether the path means the same to everybody who reads it: no dots, no
// double slashes, no escapes. Names in Kubernetes need none of these. One path of a
// kubelet ends with a slash.
func plain(r *http.Request) bool {
	return strings.TrimSuffix(r.URL.Path, "/") == strings.TrimSuffix(path.Clean(r.URL.Path), "/") && r.URL.EscapedPath() == r.URL.Path
}

// verbOf is the verb that the request needs, or empty for a method that means nothing
// here. What acts inside a pod is a create even when it comes as a GET, as it does over
// WebSocket.
func verbOf(r *http.Request) string {
	verb := map[string]string{
		http.MethodGet:    "get",
		http.MethodPost:   "create",
		http.MethodPut:    "update",
		http.MethodPatch:  "patch",
		http.MethodDelete: "delete",
	}[r.Method]
	if verb == "" {
		return ""
	}
	for _, acting := range []string{"/exec", "/attach", "/run", "/portForward"} {
		if under(r.URL.Path, acting) {
			return "create"
		}
	}
	return verb
}

// subresourcesOf are the subresources of nodes of which one must be allowed: as in a
// kubelet, the fine-grained one and then the broad one where a path has both.
func subresourcesOf(requestPath string) []string {
	for _, rule := range []struct {
		prefix       string
		subresources []string
	}{
		{"/pods", []string{"pods", "proxy"}},
		{"/runningpods", []string{"pods", "proxy"}},
		{"/healthz", []string{"healthz", "proxy"}},
		{"/configz", []string{"configz", "proxy"}},
		{"/stats", []string{"stats"}},
		{"/metrics", []string{"metrics"}},
		{"/logs", []string{"log"}},
		{"/checkpoint", []string{"checkpoint"}},
		{"/statusz", []string{"statusz"}},
		{"/flagz", []string{"configz"}},
	} {
		if under(requestPath, rule.prefix) {
			return rule.subresources
		}
	}
	return []string{"proxy"}
}

func under(requestPath, prefix string) bool {
	return requestPath == prefix || strings.HasPrefix(requestPath, prefix+"/")
}
