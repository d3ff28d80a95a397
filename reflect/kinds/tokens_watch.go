package kinds

import (
	"context"
	"maps"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// tokenSpace is an offloaded namespace with the informers that tokens depend on: service
// accounts and binding Secrets in the consumer, and Secrets with tokens in the provider.
// Only Secrets of this virtual node are watched.
type tokenSpace struct {
	opened
	accounts          *store.Store[*corev1.ServiceAccount]
	bindings, secrets *store.Store[*corev1.Secret]
}

// close deletes the records about the tokens of a namespace that was closed.
func (t *tokens) close(s *tokenSpace) {
	s.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.uses, func(key loop.Key, _ use) bool { return key.Namespace == s.local })
}

func (t *tokens) open(ctx context.Context, local, remote string) *tokenSpace {
	cfg := t.pods.cfg
	of := labels.Set(forge.TokenLabels(cfg.Node)).String()
	s := &tokenSpace{opened: opened{local: local, remote: remote}}
	var informers [3]*store.Informer
	s.accounts, informers[0] = selected("service account", &corev1.ServiceAccount{}, cfg.Home, cfg.Home.CoreV1().ServiceAccounts(local), "", cfg.Transform, cfg.Clock)
	// Another cluster that shares the namespace writes its own tokens there.
	s.bindings, informers[1] = selected("Secret", &corev1.Secret{}, cfg.Home, cfg.Home.CoreV1().Secrets(local), of+",!"+offloadingv1beta1.OriginLabel, cfg.Transform, cfg.Clock)
	s.secrets, informers[2] = selected("Secret", &corev1.Secret{}, cfg.Remote.Kube, cfg.Remote.Kube.CoreV1().Secrets(remote), of+","+offloadingv1beta1.OriginLabel+"="+cfg.Origin, cfg.Transform, cfg.Clock)
	// The two Secrets of a token have the same name.
	wake := store.Each(func(secret *corev1.Secret) { t.loop.Wake(loop.Key{Namespace: local, Name: secret.Name}) })
	s.run(ctx, func() {
		t.pods.cfg.Log.Debug("tokens of a namespace known", zap.String("namespace", local))
		t.wakeNamespace(local)
	}, []loop.Source{
		store.AnyChange(informers[0], sameAccount, func() {
			if s.synced() {
				t.wakeNamespace(local)
			}
		}), s.bindings.On(wake), s.secrets.On(wake),
	}, informers[:]...)
	return s
}

// sameAccount reports whether a service account was not replaced by another of the same name.
func sameAccount(before, after *corev1.ServiceAccount) bool { return before.UID == after.UID }

// onPod enqueues the tokens of pods that are created or deleted, have ended, or no longer need
// their tokens in the provider.
func (t *tokens) onPod() store.Handler[*corev1.Pod] {
	return store.Handler[*corev1.Pod]{
		Set: func(before, after *corev1.Pod) {
			switch {
			case before == nil:
			case before.UID != after.UID || ended(before) != ended(after) || t.pods.carries(before) != t.pods.carries(after):
				t.wakePod(before)
			default:
				return
			}
			t.wakePod(after)
		},
		Gone: func(pod *corev1.Pod, _ bool) {
			t.wakePod(pod)
			t.told.Delete(pod.UID)
		},
	}
}

func (t *tokens) wakePod(pod *corev1.Pod) { t.loop.Wake(t.keysOf(pod)...) }

// keysOf returns the tokens that a pod needs or may have. Tokens of the other setting are
// included only if they exist: the sync of a token that no pod uses checks all pods that
// the index finds.
func (t *tokens) keysOf(pod *corev1.Pod) []loop.Key {
	var out []loop.Key
	for _, token := range t.pods.tokensOf(pod) {
		out = append(out, loop.Key{Namespace: pod.Namespace, Name: token.Name})
	}
	space, tw := t.spaces.Get(pod.Namespace), t.pods.twins.Get(pod.Namespace)
	if space == nil || tw == nil {
		return out // wakeNamespace follows when the caches have synced
	}
	shadow := t.shadowOfPod(tw, pod)
	for _, token := range t.pods.otherTokens(pod) {
		if space.has(token.Name) || (shadow != nil && forge.MountsSecret(&shadow.Spec.Pod, token.Name)) {
			out = append(out, loop.Key{Namespace: pod.Namespace, Name: token.Name})
		}
	}
	return out
}

// has reports whether one of the two Secrets of a token is in the caches.
func (s *tokenSpace) has(name string) bool {
	return s.bindings.Cached(loop.Key{Namespace: s.local, Name: name}) != nil || s.secrets.Cached(loop.Key{Namespace: s.remote, Name: name}) != nil
}

// wakeName enqueues the tokens of the pod of this name, after its ShadowPod has appeared.
func (t *tokens) wakeName(namespace, name string) {
	if pod, err := t.pods.cfg.Pods.Lister().Pods(namespace).Get(name); err == nil {
		t.wakePod(pod)
	}
}

// wakeNamespace enqueues all tokens of a namespace, or of all namespaces if it is empty.
func (t *tokens) wakeNamespace(namespace string) { t.loop.Wake(t.keys(namespace)...) }

// keys returns the tokens that the pods of a namespace need or have, and those that
// exist. An empty namespace means all namespaces.
func (t *tokens) keys(namespace string) []loop.Key {
	var out []loop.Key
	for _, pod := range t.pods.localPods(namespace) {
		out = append(out, t.keysOf(pod)...)
	}
	for local, s := range t.spaces.Each(namespace) {
		for _, secret := range append(s.bindings.List(), s.secrets.List()...) {
			out = append(out, loop.Key{Namespace: local, Name: secret.Name})
		}
	}
	return out
}
