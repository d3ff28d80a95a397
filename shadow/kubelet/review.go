package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/liqod/liqod/kube/loop"
)

// The API server's own library asks for reviews too, by way of its webhook client: with
// that come gRPC, tracing and CEL, which weigh more than everything else that a vkubelet is.

// answersKept is how many answers about rights are remembered.
const answersKept = 1024

// reviews asks the API server whose a token is and what a user may.
type reviews struct {
	tokens  authenticationclient.TokenReviewInterface
	rights  authorizationclient.SubjectAccessReviewInterface
	answers *utilcache.LRUExpireCache
}

// AuthenticateToken implements authenticator.Token.
func (r *reviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	answer, err := asking(ctx, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
		return r.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	})
	if err != nil {
		return nil, false, fmt.Errorf("asking the API server whose a token is: %w", err)
	}
	if !answer.Status.Authenticated {
		return nil, false, nil
	}
	who := answer.Status.User
	extra := map[string][]string{}
	for k, v := range who.Extra {
		extra[k] = v
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}

// allowed asks whether a user may do something. Answers are remembered: a yes for
// allowTTL, a no for denyTTL.
func (r *reviews) allowed(ctx context.Context, who user.Info, what authorizationv1.ResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), ResourceAttributes: &what}
	for k, v := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[k] = v
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("writing down what %s wants: %w", who.GetName(), err)
	}
	if answer, ok := r.answers.Get(string(question)); ok {
		allowed, _ := answer.(bool)
		return allowed, nil
	}
	answer, err := asking(ctx, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
		return r.rights.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	})
	if err != nil {
		return false, fmt.Errorf("asking the API server for the rights of %s: %w", who.GetName(), err)
	}
	ttl := denyTTL
	if answer.Status.Allowed {
		ttl = allowTTL
	}
	r.answers.Add(string(question), answer.Status.Allowed, ttl)
	return answer.Status.Allowed, nil
}

// asking asks up to three times, when the API server is busy or cannot be reached.
func asking[T any](ctx context.Context, ask func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, reviewMax)
	defer cancel()
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3},
		func(ctx context.Context) (bool, error) {
			answer, last = ask(ctx)
			if last != nil && !loop.Unavailable(last) {
				return false, last
			}
			return last == nil, nil
		})
	return answer, cmp.Or(last, err)
}
