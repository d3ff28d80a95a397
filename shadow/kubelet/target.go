package kubelet

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// httpError is an answer that is no success.
type httpError struct {
	code    int
	message string
}

func (e httpError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// fail answers with err.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var answer httpError
	if errors.As(err, &answer) {
		code = answer.code
	}
	s.cfg.Log.Debug("request failed", zap.String("path", r.URL.Path), zap.Int("code", code), zap.Error(err))
	http.Error(w, err.Error(), code)
}

// target is a pod, and perhaps a container of it, in the provider, and how that is reached.
type target struct {
	namespace, pod, container string
	reach
}

// target finds what the request's path names.
func (s *Server) target(r *http.Request) (target, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	local, remoteNamespace, remoteName, err := s.cfg.Pods.Get(namespace, name)
	if apierrors.IsNotFound(err) {
		return target{}, httpError{http.StatusNotFound, fmt.Sprintf("pod %s/%s is not on node %s", namespace, name, s.cfg.NodeName)}
	}
	var answer httpError
	if errors.As(err, &answer) {
		return target{}, httpError{answer.code, fmt.Sprintf("pod %s/%s: %v", namespace, name, answer)}
	}
	if err != nil {
		return target{}, httpError{http.StatusBadGateway, fmt.Sprintf("pod %s/%s cannot be reached in the provider: %v", namespace, name, err)}
	}
	if uid := r.PathValue("uid"); uid != "" && uid != string(local.UID) {
		return target{}, httpError{http.StatusNotFound, fmt.Sprintf("pod %s/%s has UID %s, not %s: it is another pod of that name", namespace, name, local.UID, uid)}
	}
	container := r.PathValue("container")
	if container != "" && !slices.Contains(containers(local), container) {
		return target{}, httpError{http.StatusNotFound, fmt.Sprintf("pod %s/%s has no container %q", namespace, name, container)}
	}
	there, err := s.remote()
	return target{remoteNamespace, remoteName, container, there}, err
}

// containers returns the names of the containers of a pod.
func containers(pod *corev1.Pod) (names []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// reach is how the provider's API server is reached.
type reach struct {
	config *rest.Config
	client *rest.RESTClient // of the core API
}

// remote returns how the provider is reached. It is made anew only when the
// configuration is another: client-go keeps what it makes of one for ever.
func (s *Server) remote() (reach, error) {
	source, err := s.cfg.Remote()
	if err != nil {
		return reach{}, httpError{http.StatusBadGateway, fmt.Sprintf("the provider cannot be reached: %v", err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source == source && s.source != nil {
		return s.reach, nil
	}
	config := rest.CopyConfig(source)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1
	// Each stream has a connection of its own: over one shared by HTTP/2 a log whose reader
	// stalls is taken in by the megabyte, and stalls in the provider only then.
	config.NextProtos = []string{"http/1.1"}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return reach{}, httpError{http.StatusBadGateway, fmt.Sprintf("the provider cannot be reached: %v", err)}
	}
	if s.reach.client != nil {
		s.reach.client.Client.CloseIdleConnections()
	}
	s.source, s.reach = source, reach{config, client}
	return s.reach, nil
}

// outage reports whether an error of a read in the provider shows that its API server does not
// answer, or answers that it cannot serve.
func outage(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err != nil
	}
	code := int(status.Status().Code)
	return code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// remoteError turns what the provider's API server said into an answer. That it does
// not take our credentials is not the caller's fault.
func remoteError(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		// Clients show the text of a 502, and replace that of a 503 by one of their own, which is about the
		// consumer's API server.
		return httpError{http.StatusBadGateway, fmt.Sprintf("the API server of the provider does not answer; this cluster works, and pods that run in the provider go on running: %v", err)}
	}
	code := int(status.Status().Code)
	if outage(err) {
		return httpError{http.StatusBadGateway, fmt.Sprintf("the provider is not available; this cluster works: %v", err)}
	}
	if code < http.StatusBadRequest || code == http.StatusUnauthorized || code == http.StatusForbidden {
		return httpError{http.StatusBadGateway, fmt.Sprintf("the provider refuses: %v", err)}
	}
	return httpError{code, err.Error()}
}
