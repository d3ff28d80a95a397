package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// missing returns the name of the first of the tokens that the provider does not have yet, or "".
// It enqueues that token: the provider may have lost it. A service account that does not exist has
// no token.
func (t *tokens) missing(namespace string, all []forge.Token) string {
	space := t.spaces.Get(namespace)
	for _, token := range all {
		if space == nil || !space.synced() {
			return token.Name
		}
		account := space.accounts.Cached(loop.Key{Namespace: namespace, Name: token.ServiceAccount})
		if account == nil {
			continue
		}
		bound := token.PodUID
		if binding := space.bindings.Get(loop.Key{Namespace: namespace, Name: token.Name}); bound == "" && binding != nil {
			bound = binding.UID
		}
		secret := space.secrets.Get(loop.Key{Namespace: space.remote, Name: token.Name})
		if !t.pods.cfg.Clock.Now().Before(forge.TokenDue(secret, account.UID, bound)) {
			t.loop.Wake(loop.Key{Namespace: namespace, Name: token.Name})
			return token.Name
		}
	}
	return ""
}

// put writes the Secret with the token to the provider.
func (t *tokens) put(ctx context.Context, v tokenView, want *corev1.Secret) error {
	if v.secret != nil && (v.secret.DeletionTimestamp != nil || !t.ofThisNode(v.secret)) {
		return loop.After(engine.NamespaceRetry)
	}
	if v.secret != nil && !fixed(v.secret) {
		return t.patch(ctx, v, want)
	}
	if v.secret != nil {
		if err := t.remove(ctx, v); err != nil {
			return err
		}
	}
	_, err := creation[*corev1.Secret]{
		all: v.space.secrets, client: t.pods.cfg.Remote.Kube.CoreV1().Secrets(want.Namespace), mine: t.ofThisNode,
		stranger: func(have *corev1.Secret) error {
			t.tell(v.users, fmt.Sprintf("no token for cluster %s: its Secret %s/%s is not this cluster's; waiting until it is gone", t.pods.cfg.Destination, have.Namespace, have.Name))
			return nil
		},
		failed: func(err error) error { return t.notWritten(v, err) },
	}.create(ctx, want)
	return err
}

// notWritten records an event if the provider rejects the Secret, and returns the error
// for a retry.
func (t *tokens) notWritten(v tokenView, err error) error {
	if engine.IsRefusal(err) {
		t.tell(v.users, fmt.Sprintf("cluster %s refuses the Secret with the pod's token: %v", t.pods.cfg.Destination, err))
	}
	return fmt.Errorf("writing the Secret with a token: %w", err)
}

// fixed reports whether another client has made the content of the Secret immutable or
// changed its type.
func fixed(s *corev1.Secret) bool {
	return s.Type != corev1.SecretTypeOpaque || (s.Immutable != nil && *s.Immutable)
}

// patch replaces the token in a Secret. Keys that other clients have added stay.
func (t *tokens) patch(ctx context.Context, v tokenView, want *corev1.Secret) error {
	have := v.secret
	_, err := v.space.secrets.Note(store.Merge(ctx, "Secret", t.pods.cfg.Remote.Kube.CoreV1().Secrets(have.Namespace), engine.FieldManager, have, store.Patch{
		"metadata": store.Patch{"labels": want.Labels, "annotations": want.Annotations}, "data": want.Data,
	}))
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return loop.After(store.CatchUp) // the cache is behind
	}
	return t.notWritten(v, err)
}

// remove deletes the Secret with a token in the provider.
func (t *tokens) remove(ctx context.Context, v tokenView) error {
	if v.secret.DeletionTimestamp != nil || v.space.secrets.WasDeleted(v.secret.UID) || !t.ofThisNode(v.secret) {
		return nil
	}
	if err := v.space.secrets.Delete(ctx, v.secret); err != nil {
		return err
	}
	v.space.secrets.Gone(v.secret)
	return nil
}
